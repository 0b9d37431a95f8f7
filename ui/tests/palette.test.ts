import { describe, expect, it } from "vitest";
import { curlCommand, lcmCommand, matching, type PaletteCommand } from "../src/features/palette/palette";

const command = (label: string): PaletteCommand => ({ id: label, label, hint: "", denial: null, run: () => undefined });
const labels = (found: readonly PaletteCommand[]) => found.map(({ label }) => label);

describe("the palette", () => {
  const all = ["Go to Cost", "Stop bgp-2", "Open bgp-1", "Stop bgp-1"].map(command);

  it("finds by every word in any order, what begins with the text first", () => {
    expect(labels(matching(all, "bgp stop"))).toEqual(["Stop bgp-2", "Stop bgp-1"]);
    expect(labels(matching(all, "stop bgp-1"))).toEqual(["Stop bgp-1"]);
    expect(labels(matching(all, "o"))[0]).toBe("Open bgp-1");
    expect(matching(all, "nothing")).toEqual([]);
  });

  it("shows a few of many", () => {
    expect(
      matching(
        Array.from({ length: 100 }, (_, number) => command(`Open ${number}`)),
        "",
      ),
    ).toHaveLength(12);
  });
});

describe("an action as a command", () => {
  it("names the worker for lcm and its id for curl, and holds no token", () => {
    expect(lcmCommand("stop", "bgp")).toBe("lcm stop bgp");
    expect(lcmCommand("cancel-drain", "bgp")).toBe("lcm drain --cancel bgp");
    const header = 'curl -H "Authorization: Bearer $LCM_TOKEN"';
    expect(curlCommand("http://lcm", "stop", "id")).toBe(`${header} -X POST http://lcm/api/workers/id/stop`);
    expect(curlCommand("http://lcm", "delete", "id")).toBe(`${header} -X DELETE http://lcm/api/workers/id`);
  });
});
