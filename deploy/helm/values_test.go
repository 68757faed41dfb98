package helm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/keygate/keygate/internal/config"
)

// Guarantee: the configuration file and the variables of the pods are settings of the server with valid
// values, and nothing else that begins with KEYGATE_ is set.
func TestSettingsOfPodsAreValid(t *testing.T) {
	t.Parallel()
	for name, r := range releases(t) {
		all := objects(t, r)
		file := filepath.Join(t.TempDir(), "keygate.yaml")
		content := at(kindOf(t, all, "ConfigMap"), "data", "keygate.yaml").(string)
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		fs := pflag.NewFlagSet("serve", pflag.ContinueOnError)
		loader := config.Register(fs)
		env := environment(at(kindOf(t, all, "StatefulSet"), "spec", "template", "spec"))
		known := map[string]bool{config.SecretKeyVariable: true, config.AdminKeyVariable: true}
		fs.VisitAll(func(f *pflag.Flag) { known[config.Variable(f.Name)] = true })
		for variable := range env {
			if strings.HasPrefix(variable, "KEYGATE_") && !known[variable] {
				t.Errorf("%s: the pods have %s, which is not a setting", name, variable)
			}
		}
		// The server looks whether a path is a directory of certificates.
		directory := t.TempDir()
		env["KEYGATE_TLS_CERT"] = strings.ReplaceAll(env["KEYGATE_TLS_CERT"], "/etc/keygate/tls", directory)
		for secret := range strings.SplitSeq(env["KEYGATE_TLS_CERT"], ",") {
			if err := os.MkdirAll(secret, 0o700); secret != "" && err != nil {
				t.Fatal(err)
			}
		}
		for variable, value := range map[string]string{
			"KEYGATE_ADMIN_TLS_CERT": directory, "KEYGATE_CONFIG": file, "KEYGATE_DATABASE_URL": "postgres://keygate@db/keygate", "KEYGATE_DATABASE_LISTEN_URL": "postgres://keygate@db/keygate",
			"KEYGATE_REDIS_URL": "redis://redis", "KEYGATE_SECRET_KEY": strings.Repeat("A", 43), "KEYGATE_NODE_NAME": "prod-keygate-0",
		} {
			if env[variable] != "" {
				env[variable] = value
			}
		}
		delete(env, config.AdminKeyVariable) // a valid one has a checksum
		settings, err := loader.Load(func(key string) (string, bool) { v, ok := env[key]; return v, ok })
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if settings.DataDir != "/data/keygate" || settings.OpsAddr != ":8082" {
			t.Errorf("%s: the settings are %s and %s", name, settings.DataDir, settings.OpsAddr)
		}
	}
}

// Guarantee: config takes every setting that the chart does not set otherwise, and no other.
func TestSchemaListsEverySetting(t *testing.T) {
	t.Parallel()
	properties := at(readJSON(t, chartDir+"/values.schema.json"), "properties", "config", "properties").(object)
	fs := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	config.Register(fs)
	settings := 0
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Name == "config" || f.Hidden {
			return
		}
		settings++
		if key := strings.ReplaceAll(f.Name, "-", "_"); properties[key] == nil {
			t.Errorf("values.schema.json has no config.%s", key)
		}
	})
	if len(properties) != settings {
		t.Errorf("values.schema.json has %d settings in config, want %d", len(properties), settings)
	}
}

func readJSON(t *testing.T, path string) object {
	t.Helper()
	return readYAML(t, path) // JSON is YAML
}

// Guarantee: a secret reaches the pods by a reference to a Secret only, and no value holds one.
func TestSecretsAreReferences(t *testing.T) {
	t.Parallel()
	for name, r := range releases(t) {
		pod := podOf(t, r)
		env := environment(pod)
		for _, variable := range []string{"KEYGATE_DATABASE_URL", "KEYGATE_DATABASE_LISTEN_URL", "KEYGATE_REDIS_URL", "KEYGATE_SECRET_KEY", "KEYGATE_ADMIN_KEY"} {
			if value := env[variable]; value != "" && !strings.HasPrefix(value, "secret ") {
				t.Errorf("%s: %s is %q", name, variable, value)
			}
		}
		if args, _ := at(pod, "containers", 0, "args").([]any); len(args) != 1 || args[0] != "serve" || at(pod, "containers", 0, "command") != nil {
			t.Errorf("%s: the arguments are %v", name, args)
		}
	}
	env := environment(podOf(t, releases(t)["several-nodes.yaml"]))
	for variable, want := range map[string]string{
		"KEYGATE_DATABASE_URL": "secret keygate-database uri", "KEYGATE_DATABASE_LISTEN_URL": "secret keygate-database direct-uri", "KEYGATE_REDIS_URL": "secret keygate-valkey redis-url",
		"KEYGATE_SECRET_KEY": "secret prod-keygate-secret-key secret-key", "KEYGATE_ADMIN_KEY": "secret keygate-admin admin-key", "KEYGATE_NODE_NAME": "field metadata.name",
	} {
		if env[variable] != want {
			t.Errorf("%s is %q, want %q", variable, env[variable], want)
		}
	}
}

// Guarantee: wrong values are refused with a message that names the value. If the schema alone cannot
// say what to do, the message does.
func TestWrongValuesAreRefused(t *testing.T) {
	t.Parallel()
	const shared = "database: {existingSecret: db}\nsecretKey: {existingSecret: keys}\n"
	for _, test := range []struct{ values, want string }{
		{"replicas: 2", "replicas: more than one node needs a PostgreSQL database: set database.existingSecret"},
		{"replicas: 0", "at '/replicas'"},
		{"replicas: many", "at '/replicas'"},
		{"database: {existingSecret: db}", "secretKey.existingSecret: with database.existingSecret every node needs the same secret key"},
		{"secretKey: {existingSecret: keys, generate: true}", "secretKey.generate: secretKey.existingSecret is set too"},
		{"database: {listenUrlKey: direct}", "database.listenUrlKey: set database.existingSecret too"},
		{"database: {url: postgres://keygate:geheim@db/keygate}", "at '/database': additional properties 'url' not allowed"},
		{"config: {database_url: postgres://keygate:geheim@db/keygate}", "config.database_url: set database.existingSecret"},
		{"config: {redis_url: redis://:geheim@db}", "config.redis_url: set redis.existingSecret"},
		{"config: {gateway_addr: ':80'}", "config.gateway_addr: the chart sets it: gateway.service.port"},
		{"config: {drain_delay: 5s}", "config.drain_delay: set drain.delaySeconds"},
		{"config: {tls_cert: /x}", "config.tls_cert: set gateway.tls.existingSecrets"},
		{"config: {acme_http_addr: ':80'}", "config.acme_http_addr: the services have no port for it"},
		{"config: {gateway-domain: gw.example.com}", "at '/config': additional properties 'gateway-domain' not allowed"},
		{"config: {log_level: verbose}", "at '/config/log_level': value must be one of"},
		{"config: {max_connections: lots}", "at '/config/max_connections'"},
		{"config: {role: gateway}", "config.role: is for a PostgreSQL database"},
		{"config: {role: control}\ningress: {enabled: true, hosts: [gw.example.com]}\n" + shared, "config.role: control has no data plane"},
		{"extraEnv: [{name: KEYGATE_DATABASE_URL, value: postgres://keygate:geheim@db/keygate}]", "extraEnv: KEYGATE_DATABASE_URL: set it in config"},
		{"extraEnv: [{value: x}]", "at '/extraEnv/0': missing property 'name'"},
		{"drain: {delaySeconds: -1}", "at '/drain/delaySeconds'"},
		{"drain: {delaySeconds: 10s}", "at '/drain/delaySeconds'"},
		{"drain: {timeoutSeconds: null}", "at '/drain': missing property 'timeoutSeconds'"},
		{"image: {tag: latest@sha256}", "at '/image/tag'"},
		{"image: {digest: 'sha256:12'}", "at '/image/digest'"},
		{"image: {repository: ''}", "at '/image/repository'"},
		{"storage: {size: big}", "at '/storage/size'"},
		{"storage: {accessMode: ReadWriteMany}", "at '/storage/accessMode'"},
		{"gateway: {service: {port: 70000}}", "at '/gateway/service/port'"},
		{"gateway: {service: {type: ExternalName}}", "at '/gateway/service/type'"},
		{"admin: {service: {type: LoadBalancer}}", "at '/admin/service': additional properties 'type' not allowed"},
		{"ingress: {enabled: true}", "at '/ingress/hosts'"},
		{"httpRoute: {enabled: true}", "at '/httpRoute/parentRefs'"},
		{"serviceMonitor: {enabled: true}", "networkPolicy.opsFrom: serviceMonitor.enabled needs it"},
		{"podDisruptionBudget: {maxUnavailable: 0}", "at '/podDisruptionBudget/maxUnavailable'"},
		{"replicaCount: 3", "additional properties 'replicaCount' not allowed"},
	} {
		_, err := render(t, release{values: parse(t, test.values)})
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: the error is %v, want one with %q", test.values, err, test.want)
		}
		if err != nil && strings.Contains(err.Error(), "geheim") {
			t.Errorf("%s: the error has the password: %v", test.values, err)
		}
	}
}

// Guarantee: README.md lists every value with its default.
func TestReadmeListsEveryValue(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(chartDir + "/README.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for line := range strings.Lines(string(content)) {
		if name, isRow := strings.CutPrefix(line, "| `"); isRow {
			name, _, _ = strings.Cut(name, "`")
			listed[name] = true
		}
	}
	leaves(t, "", readYAML(t, chartDir+"/values.yaml"), func(name, text string) {
		if name == "config.audit_max_bytes" || name == "config.log_format" || name == "config.requests_max_bytes" {
			name = "config"
			text = "{audit_max_bytes: 10GB, log_format: json, requests_max_bytes: 2GB}"
		}
		if row := "| `" + name + "` | `" + text + "` | "; !strings.Contains(string(content), row) {
			t.Errorf("README.md lacks the row %s", row)
		}
		delete(listed, name)
	})
	for name := range listed {
		t.Errorf("README.md has %s, which is not a value", name)
	}
}

// leaves calls f for each value that is not a map with values of its own, with its name and its text.
func leaves(t *testing.T, prefix string, values object, f func(name, text string)) {
	t.Helper()
	for key, v := range values {
		if o, ok := v.(object); ok && len(o) > 0 {
			leaves(t, prefix+key+".", o, f)
			continue
		}
		text, err := yaml.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		f(prefix+key, strings.TrimSpace(string(text)))
	}
}

// Guarantee: the text that helm install prints names objects that exist, and its first command after the
// start creates a key for the management API.
func TestNotes(t *testing.T) {
	t.Parallel()
	for name, r := range releases(t) {
		rendered, err := render(t, r)
		if err != nil {
			t.Fatal(err)
		}
		notes, all := rendered["NOTES.txt"], objects(t, r)
		set := at(kindOf(t, all, "StatefulSet"), "metadata", "name").(string)
		if !strings.Contains(notes, "rollout status --namespace keygate statefulset/"+set+"\n") {
			t.Errorf("%s: the notes do not say how to wait:\n%s", name, notes)
		}
		_, hasAdmin := all["Service/"+set+"-admin"]
		if has := strings.Contains(notes, "exec --namespace keygate "+set+"-0 -- /keygate account key --account default --name operator\n"); has != hasAdmin {
			t.Errorf("%s: the notes say how to make a key: %t\n%s", name, has, notes)
		}
		for word := range strings.FieldsSeq(notes) {
			if service, ok := strings.CutPrefix(word, "service/"); ok && all["Service/"+service] == nil {
				t.Errorf("%s: the notes name the service %s", name, service)
			}
		}
	}
}

// Guarantee: the service for callers says that the nodes speak TLS, with certificates of Secrets and with those that Keygate gets itself.
func TestServiceSaysThatItSpeaksTLS(t *testing.T) {
	t.Parallel()
	for values, want := range map[string]string{
		"{}": "http", "gateway: {tls: {existingSecrets: [shop]}}": "https", "config: {acme_email: ops@example.com}": "https",
	} {
		protocols := map[any]bool{}
		for _, o := range objects(t, release{values: parse(t, values)}) {
			if o["kind"] == "Service" && at(o, "spec", "ports", 0, "name") == "gateway" {
				protocols[at(o, "spec", "ports", 0, "appProtocol")] = true
			}
		}
		if len(protocols) != 1 || !protocols[want] {
			t.Errorf("%s: the service speaks %v, want %s", values, protocols, want)
		}
	}
}
