import type {
  Demand,
  LabletDefinitionView,
  LabletSessionView,
  LicenseView,
  PreviewedSeat,
  SchedulingPreview,
  Timeslot,
  WorkerTemplate,
  WorkerView,
} from "../src/generated/api";

/** Workers, lablet sessions and templates for tests: a test names only what it is about. */

export function worker(fields: Partial<WorkerView> = {}): WorkerView {
  return {
    id: fields.name ?? "w-1",
    name: "w-1",
    template_name: "small",
    aws_region: "us-east-1",
    tags: {},
    created_at: "2026-01-01T00:00:00Z",
    created_by: "ada",
    updated_at: "2026-01-01T00:00:00Z",
    version: 1,
    generation: 1,
    desired_status: "running",
    status: "running",
    status_reason: "",
    ec2_instance_id: null,
    instance_type: null,
    ami_id: null,
    ami_name: null,
    ami_description: null,
    ami_creation_date: null,
    public_ip: null,
    private_ip: null,
    cml_version: null,
    cml_ready: false,
    cml_username: null,
    cml_certificate_sha256: null,
    cml_refused_certificate_sha256: null,
    cml_system_info: {},
    cml_health: null,
    cml_license: null,
    imported: false,
    file_set: null,
    is_trusted: true,
    discovered: null,
    labs_count: null,
    ws_connected: false,
    ws_status: null,
    last_activity_at: null,
    is_idle_detection_enabled: true,
    target_pause_at: null,
    hold: null,
    pause_reason: null,
    last_paused_at: null,
    config_extraction: null,
    last_paused_by: null,
    last_resumed_at: null,
    sessions: [],
    nominations: {},
    ports: [],
    declared_capacity: null,
    allocated_capacity: { cpu: 0, memory_gb: 0, storage_gb: 0, nodes: 0 },
    drain_started_at: null,
    drain_deadline_at: null,
    license: license(),
    possible_actions: [],
    ...fields,
  };
}

export function license(fields: Partial<LicenseView> = {}): LicenseView {
  return {
    declared: false,
    status: "unlicensed",
    terms: {},
    tier: null,
    pending_operation: null,
    pending_token: false,
    operation_in_progress: false,
    attempts: 0,
    last_error: "",
    changed_at: null,
    ...fields,
  };
}

export function template(fields: Partial<WorkerTemplate> = {}): WorkerTemplate {
  return {
    name: "small",
    description: "",
    instance_type: "t3.small",
    cpu: 2,
    memory_gb: 2,
    disk_gb: 50,
    max_nodes: 5,
    reserved_cpu: 0,
    reserved_memory_gb: 0,
    reserved_storage_gb: 0,
    cpu_overcommit: 1,
    usd_per_hour: 0.0208,
    ami_name_pattern: "CML-*",
    ami_owners: ["self"],
    ebs_encrypted: true,
    kms_key_id: null,
    iam_instance_profile: null,
    user_data: null,
    associate_public_ip: null,
    metadata_http_tokens: "required",
    capacity_reservation: null,
    nested_virtualization: false,
    allow_without_kvm: false,
    default: false,
    enabled: true,
    provisioning_timeout_minutes: null,
    drain_timeout_hours: 4,
    ...fields,
  };
}

export const DEMAND: Demand = {
  needs: { cpu: 2, memory_gb: 4, storage_gb: 20, nodes: 3 },
  ports: [],
  license_affinity: [],
  cml_version_min: null,
  cml_version_max: null,
  node_definitions: [],
  images: [],
  needs_nested_virtualization: false,
  region: null,
};

export function slot(start: string, end: string, zone = "UTC"): Timeslot {
  return { start, end, zone };
}

/** A lablet session that runs without a timeslot. */
export function lablet(fields: Partial<LabletSessionView> = {}): LabletSessionView {
  return {
    id: "s-1",
    definition_id: "d-1",
    definition_name: "bgp",
    definition_version: "1.0.0",
    owner_id: "ada",
    reservation_id: null,
    retry_of: null,
    batch: null,
    priority: 0,
    timeslot: null,
    demand: DEMAND,
    max_duration_minutes: 60,
    collect: "none",
    version: 1,
    generation: 1,
    status: "running",
    desired_status: "running",
    status_reason: "",
    created_at: "2026-01-01T00:00:00Z",
    updated_at: "2026-01-01T00:00:00Z",
    scheduled_at: null,
    ready_at: null,
    started_at: null,
    ended_at: null,
    ends_at: null,
    ending_soon_minutes: null,
    worker_id: null,
    nominated: null,
    waits_for: null,
    place_attempts: 0,
    next_try_at: null,
    end_reason: null,
    end_asked_by: null,
    end_asked_at: null,
    lab: null,
    steps: {},
    nodes: {},
    cleanup: {},
    evidence: [],
    ...fields,
  };
}

export function definition(fields: Partial<LabletDefinitionView> = {}): LabletDefinitionView {
  return {
    id: fields.name ?? "d-1",
    name: "bgp",
    version: "1.0.0",
    owner: "ada",
    created_at: "2026-01-01T00:00:00Z",
    status: "active",
    lab_yaml_hash: "",
    node_count: 3,
    demand: DEMAND,
    computed_needs: DEMAND.needs,
    options: {
      description: "",
      stated_needs: null,
      license_affinity: [],
      cml_version_min: null,
      cml_version_max: null,
      needs_nested_virtualization: false,
      max_duration_minutes: 60,
      latest_start_minutes: 30,
      boot_lead_time_minutes: 0,
      boot_timeout_seconds: null,
      collect: "none",
      priority: 0,
    },
    has_access_login: false,
    file_set: null,
    ...fields,
  };
}

export function previewedSeat(fields: Partial<PreviewedSeat> = {}): PreviewedSeat {
  return { outcome: "wait", code: null, text: "", worker_id: null, worker_name: null, eta: null, ...fields };
}

/** A preview of one seat. */
export function preview(fields: Partial<SchedulingPreview> = {}): SchedulingPreview {
  return {
    verdict: "fits",
    text: "",
    seats: [previewedSeat()],
    placed: 0,
    waiting: 0,
    impossible: 0,
    brought_back: [],
    launches: [],
    usd_per_hour: 0,
    usd_total: null,
    candidates: [],
    workers: [],
    forecast: { verdict: "fits", text: "", workers_needed: 0, workers_possible: 0, nearest: [] },
    ...fields,
  };
}
