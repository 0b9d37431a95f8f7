import type { LicenseView, WorkerTemplate, WorkerView } from "../src/generated/api";
/** Workers and templates for tests: a test names only what it is about. */

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
    imported: false,
    labs_count: null,
    ws_connected: false,
    ws_status: null,
    last_activity_at: null,
    is_idle_detection_enabled: true,
    target_pause_at: null,
    hold: null,
    pause_reason: null,
    last_paused_at: null,
    last_paused_by: null,
    last_resumed_at: null,
    sessions: [],
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
    usd_per_hour: 0.0208,
    ami_name_pattern: "CML-*",
    enabled: true,
    drain_timeout_hours: 4,
    ...fields,
  };
}
