{{- define "tilewright.name" -}}
{{ default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- /* The release name if it contains "tilewright". Truncated to leave space for suffixes. */ -}}
{{- define "tilewright.fullname" -}}
{{- $name := include "tilewright.name" . -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride }}
{{- else if contains $name .Release.Name -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" }}
{{- end -}}
{{- end }}

{{- define "tilewright.controller" -}}
{{ include "tilewright.fullname" . }}-controller
{{- end }}

{{- define "tilewright.rendezvous" -}}
{{ include "tilewright.fullname" . }}-rendezvous
{{- end }}

{{- define "tilewright.masterKey" -}}
{{ include "tilewright.fullname" . }}-master-key
{{- end }}

{{- /* Name of cluster-scoped objects. It contains the namespace, because releases in two namespaces may have the same name. */ -}}
{{- define "tilewright.clusterName" -}}
{{ printf "%s-%s" .Release.Namespace (include "tilewright.fullname" .) }}
{{- end }}

{{- define "tilewright.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ default (include "tilewright.fullname" .) .Values.serviceAccount.name }}
{{- else -}}
{{ required "serviceAccount.name: found nothing, expected the name of a ServiceAccount, since serviceAccount.create is false" .Values.serviceAccount.name }}
{{- end -}}
{{- end }}

{{- define "tilewright.selector" -}}
app.kubernetes.io/name: {{ include "tilewright.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: controller
{{- end }}

{{- define "tilewright.labels" -}}
{{ include "tilewright.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "tilewright.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ default $.Chart.AppVersion .tag }}
{{- end -}}
{{- end -}}
{{- end }}

{{/* Not empty if the operator serves the TCPStores of PyTorchJobs. */}}
{{- define "tilewright.tcpstore" -}}
{{- with .Values.pytorchjobs }}{{ if and .enabled .store }}true{{ end }}{{ end -}}
{{- end }}

{{- /* Empty: no gang scheduler. */ -}}
{{- define "tilewright.gangScheduler" -}}
{{- if ne .Values.gangSchedulerName "none" }}{{ .Values.gangSchedulerName }}{{ end -}}
{{- end }}

{{- /* API groups of the PodGroups that the operator may create; empty: none. */ -}}
{{- define "tilewright.podGroups" -}}
{{- $gangScheduler := include "tilewright.gangScheduler" . -}}
{{- if eq $gangScheduler "volcano" -}}
scheduling.volcano.sh
{{- else if $gangScheduler -}}
scheduling.x-k8s.io
{{- else if .Values.rbac.podGroups -}}
scheduling.volcano.sh, scheduling.x-k8s.io
{{- end -}}
{{- end }}
