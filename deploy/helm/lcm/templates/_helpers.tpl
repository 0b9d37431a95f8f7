{{- define "lcm.name" -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "lcm.labels" -}}
app.kubernetes.io/name: lcm
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "lcm.selector" -}}
app.kubernetes.io/name: lcm
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "lcm.secret" -}}
{{- .Values.existingSecret | default (include "lcm.name" .) -}}
{{- end -}}

{{- define "lcm.tls" -}}
{{- .Values.tls.secret | default (print (include "lcm.name" .) "-tls") -}}
{{- end -}}

{{- /* Each process gets the secrets it needs, a controller the key of its own; keys.json none by environment. */ -}}
{{- define "lcm.env" -}}
{{- with .service }}
- name: CONTROL_PLANE_API_KEY
  valueFrom: { secretKeyRef: { name: {{ include "lcm.secret" $.root }}, key: {{ . | upper | replace "-" "_" }}_API_KEY } }
{{- end }}
{{- range .names }}
- name: {{ . }}
  valueFrom: { secretKeyRef: { name: {{ include "lcm.secret" $.root }}, key: {{ . }} } }
{{- end }}
{{- end -}}

{{- define "lcm.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{- define "lcm.peers" -}}
{{- $name := include "lcm.name" . -}}
{{- range $i := until (int .Values.controlPlane.replicas) -}}
{{- if $i }},{{ end }}https://{{ $name }}-control-plane-{{ $i }}.{{ $name }}-control-plane-each.{{ $.Release.Namespace }}.svc:8080
{{- end -}}
{{- end -}}

{{- define "lcm.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile: { type: RuntimeDefault }
{{- end -}}

{{- define "lcm.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end -}}

{{- define "lcm.spread" -}}
- maxSkew: 1
  topologyKey: kubernetes.io/hostname
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels: {{- include "lcm.selector" . | nindent 6 }}
{{- end -}}

{{- define "lcm.probes" -}}
startupProbe:
  httpGet: { path: /health, port: http, scheme: HTTPS }
  periodSeconds: 2
  failureThreshold: 60
livenessProbe:
  httpGet: { path: /health, port: http, scheme: HTTPS }
  periodSeconds: 10
  timeoutSeconds: 3
readinessProbe:
  httpGet: { path: /ready, port: http, scheme: HTTPS }
  periodSeconds: 5
  timeoutSeconds: 3
{{- end -}}
