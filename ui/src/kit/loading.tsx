/** What a page shows until its first answer. */

export function Loading() {
  return (
    <div class="timeline-skeleton" aria-busy="true">
      <span class="placeholder" />
      <span class="placeholder" />
    </div>
  );
}
