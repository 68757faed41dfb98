{{- define "keygate.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- /* The name of all objects. With the longest suffix and a number it stays below 63 characters. */}}
{{- define "keygate.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else if contains (include "keygate.name" .) .Release.Name }}
{{- .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "keygate.name" .) | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "keygate.selector" -}}
app.kubernetes.io/name: {{ include "keygate.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "keygate.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{ include "keygate.selector" . }}
{{- end }}

{{- define "keygate.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "keygate.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "keygate.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{- /* "true" if the pods have a data plane, or a management API. */}}
{{- define "keygate.hasGateway" -}}
{{- if ne (default "all" .Values.config.role) "control" }}true{{ end }}
{{- end }}
{{- define "keygate.hasAdmin" -}}
{{- if ne (default "all" .Values.config.role) "gateway" }}true{{ end }}
{{- end }}

{{- /* The Secret with the key that encrypts stored secrets, or "" if the file on the volume has it. */}}
{{- define "keygate.secretKeySecret" -}}
{{- if .Values.secretKey.existingSecret }}
{{- .Values.secretKey.existingSecret }}
{{- else if .Values.secretKey.generate }}
{{- printf "%s-secret-key" (include "keygate.fullname" .) }}
{{- end }}
{{- end }}

{{- define "keygate.secretKeyName" -}}
{{- if .Values.secretKey.existingSecret }}{{ .Values.secretKey.key }}{{ else }}secret-key{{ end }}
{{- end }}

{{- /* How long Kubernetes waits for the server to stop: the drain, then the 10 s in which the server writes
what is in memory, and 5 s to spare. */}}
{{- define "keygate.gracePeriod" -}}
{{- add .Values.drain.delaySeconds .Values.drain.timeoutSeconds 15 }}
{{- end }}

{{- /* What values.schema.json cannot say: rules over several values, and settings that have a value of
their own. */}}
{{- define "keygate.validate" -}}
{{- $v := .Values }}
{{- if and (gt (int $v.replicas) 1) (not $v.database.existingSecret) }}
{{- fail "replicas: more than one node needs a PostgreSQL database: set database.existingSecret to a Secret with its URL, or set replicas to 1" }}
{{- end }}
{{- if and $v.secretKey.existingSecret $v.secretKey.generate }}
{{- fail "secretKey.generate: secretKey.existingSecret is set too: remove one of them" }}
{{- end }}
{{- if and $v.database.existingSecret (not (include "keygate.secretKeySecret" .)) }}
{{- fail "secretKey.existingSecret: with database.existingSecret every node needs the same secret key: set it to a Secret with the key, or set secretKey.generate to true" }}
{{- end }}
{{- if and $v.database.listenUrlKey (not $v.database.existingSecret) }}
{{- fail "database.listenUrlKey: set database.existingSecret too, or remove it" }}
{{- end }}
{{- $instead := dict
  "data_dir" "the chart sets it to a directory on the volume"
  "gateway_addr" "the chart sets it: gateway.service.port is the port for callers"
  "admin_addr" "the chart sets it: admin.service.port is the port for callers"
  "ops_addr" "the chart sets it, and probes ask it"
  "node_name" "the chart sets it to the name of the pod"
  "drain_delay" "set drain.delaySeconds, from which terminationGracePeriodSeconds follows too"
  "drain_timeout" "set drain.timeoutSeconds, from which terminationGracePeriodSeconds follows too"
  "database_url" "set database.existingSecret, so that the password is in a Secret"
  "database_listen_url" "set database.listenUrlKey, so that the password is in a Secret"
  "redis_url" "set redis.existingSecret, so that the password is in a Secret"
  "secret_key_file" "set secretKey.existingSecret"
  "tls_cert" "set gateway.tls.existingSecrets"
  "tls_key" "set gateway.tls.existingSecrets"
  "admin_tls_cert" "set admin.tls.existingSecret"
  "admin_tls_key" "set admin.tls.existingSecret"
  "acme_http_addr" "the services have no port for it: have hostnames validated at port 443, at gateway.service.port" }}
{{- range $key, $reason := $instead }}
{{- if hasKey $v.config $key }}
{{- fail (printf "config.%s: %s, and remove it from config" $key $reason) }}
{{- end }}
{{- end }}
{{- range $key := list "role" "lease_ttl" "on_database_loss" "spool_max_bytes" "migrate" }}
{{- if and (hasKey $v.config $key) (not $v.database.existingSecret) }}
{{- fail (printf "config.%s: is for a PostgreSQL database: set database.existingSecret too, or remove it" $key) }}
{{- end }}
{{- end }}
{{- range $v.extraEnv }}
{{- if hasPrefix "KEYGATE_" .name }}
{{- fail (printf "extraEnv: %s: set it in config, or for a secret in database, redis, secretKey or adminKey, and remove it from extraEnv" .name) }}
{{- end }}
{{- end }}
{{- if and (not (include "keygate.hasGateway" .)) (or $v.ingress.enabled $v.httpRoute.enabled) }}
{{- fail "config.role: control has no data plane for ingress or httpRoute: set their enabled to false" }}
{{- end }}
{{- if and $v.serviceMonitor.enabled $v.networkPolicy.enabled (not $v.networkPolicy.opsFrom) }}
{{- fail "networkPolicy.opsFrom: serviceMonitor.enabled needs it: select the pods or the namespace of Prometheus, or set networkPolicy.enabled to false" }}
{{- end }}
{{- end }}
