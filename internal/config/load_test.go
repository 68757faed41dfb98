package config_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/keygate/keygate/internal/config"
)

// load reads settings from args, environment and, if file is not "", a
// configuration file with that content.
func load(t *testing.T, args []string, env map[string]string, file string) (*config.Config, error) {
	t.Helper()
	if file != "" {
		path := filepath.Join(t.TempDir(), "keygate.yaml")
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--config", path)
	}
	fs := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	loader := config.Register(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	return loader.Load(func(name string) (string, bool) {
		v, ok := env[name]
		return v, ok
	})
}

// Guarantee: a flag takes precedence over the environment, the environment over the file, and the
// file over the default, for every combination of sources (contract, section 1).
func TestSourcesTakePrecedenceInOrder(t *testing.T) {
	const flag, env, file, fallback = "127.0.0.1:1001", "127.0.0.1:1002", "127.0.0.1:1003", "127.0.0.1:8080"
	for _, tc := range []struct {
		name              string
		flag, env, inFile bool
		want, wantOrigin  string
		isSuffix          bool // of the origin, which begins with the path of the file
	}{
		{"nothing", false, false, false, fallback, "the default", false},
		{"file", false, false, true, file, "keygate.yaml:2: gateway_addr", true},
		{"environment", false, true, false, env, "the environment variable KEYGATE_GATEWAY_ADDR", false},
		{"environment and file", false, true, true, env, "the environment variable KEYGATE_GATEWAY_ADDR", false},
		{"flag", true, false, false, flag, "--gateway-addr", false},
		{"flag and file", true, false, true, flag, "--gateway-addr", false},
		{"flag and environment", true, true, false, flag, "--gateway-addr", false},
		{"all", true, true, true, flag, "--gateway-addr", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var args []string
			if tc.flag {
				args = append(args, "--gateway-addr", flag)
			}
			vars := map[string]string{}
			if tc.env {
				vars["KEYGATE_GATEWAY_ADDR"] = env
			}
			content := ""
			if tc.inFile {
				content = "# a comment\ngateway_addr: " + file + "\n"
			}
			c, err := load(t, args, vars, content)
			if err != nil {
				t.Fatal(err)
			}
			if c.GatewayAddr != tc.want {
				t.Errorf("GatewayAddr = %s, want %s", c.GatewayAddr, tc.want)
			}
			got := c.Origin("gateway-addr").String()
			switch {
			case tc.isSuffix && !strings.HasSuffix(got, tc.wantOrigin):
				t.Errorf("origin = %q, want the suffix %q", got, tc.wantOrigin)
			case !tc.isSuffix && got != tc.wantOrigin:
				t.Errorf("origin = %q, want %q", got, tc.wantOrigin)
			}
		})
	}
}

// Guarantee: the defaults are as in the contract's table.
func TestDefaultsAreThoseOfTheContract(t *testing.T) {
	c, err := load(t, nil, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	if c.DataDir != "./keygate-data" || c.GatewayAddr != "127.0.0.1:8080" || c.AdminAddr != "127.0.0.1:8081" ||
		c.OpsAddr != "127.0.0.1:8082" || c.GatewayDomain != "localhost" || c.SecretKeyFile != "keygate-data/secret.key" ||
		c.TLSCert+c.TLSKey+c.AdminTLSCert+c.AdminTLSKey != "" || len(c.TrustedProxies) != 0 || c.MaxConnections != 65536 || c.MaxConnectionsPerAddress != 4096 ||
		len(c.UpstreamAllowNetwork) != 0 || c.DefaultGlobalLimit.String() != "1000000/s" || c.DrainTimeout != 30*time.Second ||
		len(c.WebhookAllowNetwork) != 0 || c.WebhookAllowHTTP ||
		c.WebhookBackoff != [4]time.Duration{10 * time.Second, time.Minute, 6 * time.Minute, 36 * time.Minute} ||
		c.Pprof || c.LogLevel != "info" || c.LogFormat != "auto" {
		t.Errorf("got the defaults %+v, want those of the contract", c)
	}
}

// Guarantee: every setting can be given in the file, and lists in both forms in the file
// and in the environment.
func TestEverySettingCanBeGivenInTheFile(t *testing.T) {
	file := `
data_dir: /tmp/k
gateway_addr: ":9000"
admin_addr: "[::1]:9001"
ops_addr: localhost:0
pprof: true
gateway_domain: GW.Example.com.
secret_key_file: /tmp/s
tls_cert: /tmp/c
tls_key: /tmp/k
admin_tls_cert: /tmp/ac
admin_tls_key: /tmp/ak
trusted_proxies: [192.0.2.0/24, "2001:db8::/32"]
max_connections: 100
max_connections_per_address: 10
upstream_allow_network: [10.0.0.0/8, "fd00::/8"]
webhook_allow_network: [127.0.0.0/8]
webhook_backoff: [1s, 2s, 3s, 4ms]
webhook_allow_http: true
default_global_limit: 5/min
drain_timeout: 1m30s
log_level: debug
log_format: json
`
	c, err := load(t, nil, nil, file)
	if err != nil {
		t.Fatal(err)
	}
	if c.DataDir != "/tmp/k" || c.GatewayAddr != ":9000" || c.AdminAddr != "[::1]:9001" || c.OpsAddr != "localhost:0" || !c.Pprof ||
		c.TLSCert != "/tmp/c" || c.TLSKey != "/tmp/k" || c.AdminTLSCert != "/tmp/ac" || c.AdminTLSKey != "/tmp/ak" || len(c.TrustedProxies) != 2 ||
		c.MaxConnections != 100 || c.MaxConnectionsPerAddress != 10 ||
		c.GatewayDomain != "gw.example.com" || c.SecretKeyFile != "/tmp/s" || len(c.UpstreamAllowNetwork) != 2 ||
		len(c.WebhookAllowNetwork) != 1 || !c.WebhookAllowHTTP ||
		c.WebhookBackoff != [4]time.Duration{time.Second, 2 * time.Second, 3 * time.Second, 4 * time.Millisecond} ||
		c.DefaultGlobalLimit.Count != 5 || c.DrainTimeout != 90*time.Second || c.LogLevel != "debug" || c.LogFormat != "json" {
		t.Errorf("from the file: got %+v, want the values written there", c)
	}
	c, err = load(t, []string{"--upstream-allow-network", "10.0.0.0/8", "--upstream-allow-network", "172.16.0.0/12,192.168.0.0/16", "--pprof"},
		map[string]string{"KEYGATE_WEBHOOK_BACKOFF": "1s, 2s,3s,4ms", "KEYGATE_DRAIN_TIMEOUT": "0s", "KEYGATE_LOG_LEVEL": "", "KEYGATE_REDIS_URL": ""}, "")
	if err != nil {
		t.Fatal(err)
	}
	if c.WebhookBackoff[3] != 4*time.Millisecond || len(c.UpstreamAllowNetwork) != 3 || !c.Pprof || c.DrainTimeout != 0 || c.LogLevel != "info" {
		t.Errorf("from flags and environment: got %+v, want the values given there", c)
	}
}

// Guarantee: the base path is / or plain segments, with or without a slash at its end, and any other
// value is an error that names the setting (contract, section 1).
func TestAdminBasePath(t *testing.T) {
	for given, want := range map[string]string{
		"/": "/", "/keygate": "/keygate", "/keygate/": "/keygate", "/a/b/": "/a/b", "/~x/v1.2-3_4": "/~x/v1.2-3_4", "/" + strings.Repeat("a", 127): "/" + strings.Repeat("a", 127),
	} {
		c, err := load(t, []string{"--admin-base-path", given}, nil, "")
		if err != nil || c.AdminBasePath != want {
			t.Errorf("%s: got %v (%v), want %s", given, c, err, want)
		}
	}
	for _, given := range []string{
		"keygate", "a/b", "//", "//evil.example", "/a//b", "/.", "/..", "/a/../b", "/a/./b", "/a?b", "/a#b", "/a%2fb", "/a b", `/a\b`, "/a\n", "/ä", `/"><script>`,
		"https://example.com/", "/" + strings.Repeat("a", 128),
	} {
		_, err := load(t, []string{"--admin-base-path", given}, nil, "")
		if err == nil || !strings.Contains(err.Error(), "admin-base-path") {
			t.Errorf("%q: got %v, want an error that names the setting", given, err)
		}
	}
}

// Guarantee: UseWebhookBackoff changes the waits, and what GET /v1/settings shows, unless they were
// set.
func TestUseWebhookBackoff(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{{nil, "1s,2s,3s,4s"}, {[]string{"--webhook-backoff", "5s,6s,7s,8s"}, "5s,6s,7s,8s"}} {
		settings, err := load(t, c.args, nil, "")
		if err != nil {
			t.Fatal(err)
		}
		if err := settings.UseWebhookBackoff("1s,2s,3s,4s"); err != nil {
			t.Fatal(err)
		}
		for _, v := range settings.Values() {
			if v.Name == "webhook-backoff" && v.Text != c.want {
				t.Errorf("with %q: got %s, want %s", c.args, v.Text, c.want)
			}
		}
		if first := settings.WebhookBackoff[0].String(); !strings.HasPrefix(c.want, first+",") {
			t.Errorf("with %q: got a first wait of %s, want %s", c.args, first, c.want)
		}
	}
}

// Guarantee: KEYGATE_CONFIG sets the file, and --config takes precedence.
func TestConfigVariableSetsTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "k.yaml")
	if err := os.WriteFile(path, []byte("log_level: warn\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"KEYGATE_CONFIG": path}
	c, err := load(t, nil, env, "")
	if err != nil || c.LogLevel != "warn" {
		t.Errorf("KEYGATE_CONFIG: got %v, error %v; want log level warn", c, err)
	}
	if c, err = load(t, nil, env, "log_level: error\n"); err != nil || c.LogLevel != "error" {
		t.Errorf("--config: got %v, error %v; want log level error", c, err)
	}
}

// Guarantee: the error for an invalid value names its source and says what to write.
func TestInvalidValueNamesItsSource(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		env  map[string]string
		file string
		want []string // parts of the message
	}{
		{"unknown key", nil, nil, "log_level: info\n\nlisten: 1\n", []string{"keygate.yaml:3", "listen", "unknown setting"}},
		{"dashed key", nil, nil, "log-level: info\n", []string{"keygate.yaml:1", "did you mean log_level?"}},
		{"config in the file", nil, nil, "config: x\n", []string{"keygate.yaml:1", "unknown setting"}},
		{"second document", nil, nil, "log_level: info\n---\nlog_level: warn\n", []string{"keygate.yaml: line 2, column 1", "second document"}},
		{"tab", nil, nil, "tls_cert:\n\t- a.pem\n", []string{"keygate.yaml: line 2, column 1", "use spaces"}},
		{"no space after the colon", nil, nil, "log_level: info\ndata_dir:/d\npprof: true\n", []string{"keygate.yaml: line 2", "a space after the colon"}},
		{"UTF-16", nil, nil, "\xff\xfel\x00", []string{"keygate.yaml: line 1, column 1", "UTF-16"}},
		{"Latin-1", nil, nil, "node_name: caf\xe9\n", []string{"keygate.yaml: line 1, column 15", "Latin-1"}},
		{"key in capitals", nil, nil, "KEYGATE_LOG_LEVEL: info\n", []string{"keygate.yaml:1", "did you mean log_level?"}},
		{"no-break space", nil, nil, "\u00a0log_level: info\n", []string{"keygate.yaml:1", "U+00A0"}},
		{"yes", nil, nil, "pprof: yes\n", []string{"keygate.yaml:1", "must be true or false"}},
		{"a directory of the shell", nil, nil, "data_dir: ~/keygate\n", []string{"keygate.yaml:1: data_dir", "no shell reads this"}},
		{"a variable of the shell", []string{"--tls-cert", "a.pem,$HOME/b.pem"}, nil, "", []string{"--tls-cert", "no shell reads this"}},
		{"access log on", []string{"--access-log", "on"}, nil, "", []string{"--access-log", "off, stdout or the path"}},
		{"access log to standard error", nil, map[string]string{"KEYGATE_ACCESS_LOG": "stderr"}, "", []string{"KEYGATE_ACCESS_LOG", "off, stdout or the path"}},
		{"key twice", nil, nil, "log_level: info\nlog_level: warn\n", []string{"log_level", "line"}},
		{"no value", nil, nil, "log_level:\n", []string{"keygate.yaml:1", "no value"}},
		{"list for a scalar", nil, nil, "log_level: [info]\n", []string{"keygate.yaml:1", "one plain value"}},
		{"mapping for a list", nil, nil, "upstream_allow_network: {a: b}\n", []string{"keygate.yaml:1", "list"}},
		{"not a mapping", nil, nil, "- a\n", []string{"keygate.yaml:1", "one setting per line"}},
		{"a second document", nil, nil, "log_level: info\n---\n# more\nlog_level: warn\n", []string{"keygate.yaml: line 2, column 1", "second document", "---"}},
		{"a document behind an empty one", nil, nil, "---\n---\nlog_level: warn\n", []string{"keygate.yaml: line 2, column 1", "second document"}},
		{"not YAML", nil, nil, "a: [\n", []string{"keygate.yaml", "line"}},
		{"bad value in file", nil, nil, "\ndrain_timeout: 30\n", []string{"keygate.yaml:2", "drain_timeout", "30s"}},
		{"bad value in variable", nil, map[string]string{"KEYGATE_GATEWAY_ADDR": "8080"}, "", []string{"KEYGATE_GATEWAY_ADDR", "host:port"}},
		{"bad value in flag", []string{"--default-global-limit", "0/s"}, nil, "", []string{"--default-global-limit", "<count>/<unit>"}},
		{"a size without number", []string{"--audit-max-bytes", "GB"}, nil, "", []string{"--audit-max-bytes", "50GB"}},
		{"a size of an unknown unit", []string{"--audit-max-bytes", "50gb"}, nil, "", []string{"--audit-max-bytes", "50GB"}},
		{"a size above 63 bits", []string{"--audit-max-bytes", "9999999999TB"}, nil, "", []string{"--audit-max-bytes", "not a valid size"}},
		{"an audit log below 1MB", []string{"--audit-max-bytes", "1KB"}, nil, "", []string{"--audit-max-bytes", "1MB"}},
		{"a request log below 1MB", []string{"--requests-max-bytes", "1KB"}, nil, "", []string{"--requests-max-bytes", "1MB"}},
		{"negative duration", []string{"--drain-timeout", "-1s"}, nil, "", []string{"--drain-timeout", "negative"}},
		{"port out of range", []string{"--ops-addr", "127.0.0.1:70000"}, nil, "", []string{"--ops-addr", "65535"}},
		{"network without prefix", []string{"--upstream-allow-network", "10.0.0.1"}, nil, "", []string{"prefix length"}},
		{"network with host bits", []string{"--upstream-allow-network", "10.0.0.1/8"}, nil, "", []string{"10.0.0.0/8"}},
		{"domain is an address", []string{"--gateway-domain", "127.0.0.1"}, nil, "", []string{"--gateway-domain", "IP address"}},
		{"domain with a space", []string{"--gateway-domain", "a b"}, nil, "", []string{"--gateway-domain", "domain"}},
		{"unknown level", nil, map[string]string{"KEYGATE_LOG_LEVEL": "loud"}, "", []string{"KEYGATE_LOG_LEVEL", "debug, info"}},
		{"empty data directory", []string{"--data-dir", ""}, nil, "", []string{"--data-dir", "directory"}},
		{"proxies without prefix", []string{"--trusted-proxies", "10.0.0.1"}, nil, "", []string{"--trusted-proxies", "prefix length"}},
		{"too few lines of metrics", []string{"--metrics-max-series", "999"}, nil, "", []string{"--metrics-max-series", "between 1000 and 50000"}},
		{"no connections", []string{"--max-connections", "0"}, nil, "", []string{"--max-connections", "between 1"}},
		{"not a number", nil, nil, "max_connections_per_address: many\n", []string{"keygate.yaml:1", "must be a number"}},
		{"certificate alone", []string{"--tls-cert", "c.pem"}, nil, "", []string{"--tls-cert", "also needs tls-key"}},
		{"more certificates than keys", []string{"--tls-cert", "a.pem", "--tls-cert", "b.pem", "--tls-key", "a.key"}, nil, "", []string{"--tls-key", "1 keys for the 2 certificates"}},
		{"a key for a directory", []string{"--tls-cert", os.TempDir(), "--tls-key", "a.key"}, nil, "", []string{"--tls-key", "none for a directory"}},
		{"no certificate in the list", []string{"--tls-cert", ",", "--tls-key", "a.key"}, nil, "", []string{"--tls-cert", "names no file"}},
		{"no file in the list of keys", []string{"--admin-tls-key", " , "}, nil, "", []string{"--admin-tls-key", "also needs admin-tls-cert"}},
		{"key alone", nil, map[string]string{"KEYGATE_ADMIN_TLS_KEY": "k.pem"}, "", []string{"KEYGATE_ADMIN_TLS_KEY", "also needs admin-tls-cert"}},
		{"too few waits", []string{"--webhook-backoff", "1s,2s,3s"}, nil, "", []string{"--webhook-backoff", "4 durations"}},
		{"too many waits", nil, map[string]string{"KEYGATE_WEBHOOK_BACKOFF": "1s,2s,3s,4s,5s"}, "", []string{"KEYGATE_WEBHOOK_BACKOFF", "4 durations"}},
		{"a wait of zero", nil, nil, "webhook_backoff: 1s,0s,3s,4s\n", []string{"keygate.yaml:1", "more than 0s"}},
		{"a list of too few waits", nil, nil, "webhook_backoff: [1s, 2s]\n", []string{"keygate.yaml:1", "4 durations"}},
		{"a negative wait", []string{"--webhook-backoff", "1s,2s,3s,-4s"}, nil, "", []string{"--webhook-backoff", "more than 0s"}},
		{"a wait beyond the retention", []string{"--webhook-backoff", "1s,2s,3s,169h"}, nil, "", []string{"--webhook-backoff", "at most 168h"}},
		{"a wait without unit", []string{"--webhook-backoff", "1,2,3,4"}, nil, "", []string{"--webhook-backoff", "not a valid duration"}},
		{"webhook network without prefix", []string{"--webhook-allow-network", "127.0.0.1"}, nil, "", []string{"--webhook-allow-network", "prefix length"}},
		{"two listeners on one address", []string{"--ops-addr", "127.0.0.1:8080"}, nil, "", []string{"--ops-addr", "gateway-addr"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := load(t, tc.args, tc.env, tc.file)
			if err == nil {
				t.Fatal("got no error")
			}
			for _, part := range tc.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not contain %q", err, part)
				}
			}
		})
	}
}

// Guarantee: a size is parsed with its unit, and shown as it was written.
func TestSizeIsParsedWithItsUnit(t *testing.T) {
	for text, want := range map[string]int64{"": 50e9, "50GB": 50e9, "1MB": 1e6, "2MiB": 2 << 20, "1000000": 1e6, "3TB": 3e12, "7GiB": 7 << 30} {
		var args []string
		if text != "" {
			args = []string{"--audit-max-bytes", text}
		}
		c, err := load(t, args, nil, "")
		if err != nil {
			t.Fatal(err)
		}
		if c.AuditMaxBytes != want {
			t.Errorf("%q is %d bytes, want %d", text, c.AuditMaxBytes, want)
		}
		for _, v := range c.Values() {
			if v.Name == "audit-max-bytes" && text != "" && v.Text != text {
				t.Errorf("%q is shown as %q, want it as written", text, v.Text)
			}
		}
	}
}

// Guarantee: a configuration file that is set must exist.
func TestMissingFileIsAnError(t *testing.T) {
	if _, err := load(t, []string{"--config", filepath.Join(t.TempDir(), "none.yaml")}, nil, ""); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got error %v, want os.ErrNotExist", err)
	}
}

// Guarantee: no file makes the loader panic, or succeed without the settings that are
// always set.
func FuzzFile(f *testing.F) {
	for _, s := range []string{"", "log_level: info", "upstream_allow_network: [10.0.0.0/8]", "a: &x [*x]", "- 1", "? {a: b}\n: c", "<<: {log_level: info}"} {
		f.Add(s)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, content string) {
		path := filepath.Join(dir, "k.yaml")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		fs := pflag.NewFlagSet("serve", pflag.ContinueOnError)
		loader := config.Register(fs)
		if err := fs.Parse([]string{"--config", path}); err != nil {
			t.Fatal(err)
		}
		if c, err := loader.Load(func(string) (string, bool) { return "", false }); err == nil && c.GatewayAddr == "" {
			t.Error("got no error and no gateway address, want the default address")
		}
	})
}

// Guarantee: Values returns every setting of this version with its value and source.
func TestValuesReturnsEverySetting(t *testing.T) {
	c, err := load(t, []string{"--drain-timeout", "5s"}, map[string]string{"KEYGATE_PPROF": "true"}, "upstream_allow_network: [10.0.0.0/8]\n")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, v := range c.Values() {
		if v.Text == "" && v.Source != "default" {
			t.Errorf("%s has source %s and no value, want a value", v.Name, v.Source)
		}
		got[v.Name] = v.Text + " " + v.Source
	}
	for name, want := range map[string]string{
		"drain-timeout": "5s flag", "pprof": "true environment", "upstream-allow-network": "10.0.0.0/8 file", "gateway-domain": "localhost default",
		"webhook-backoff": "10s,60s,6m,36m default", "webhook-allow-http": "false default", "webhook-allow-network": " default",
	} {
		if got[name] != want {
			t.Errorf("%s = %q, want %q", name, got[name], want)
		}
	}
}

// Guarantee: repeated certificates go with the keys in their order, and a directory among
// them takes no key.
func TestCertificatesGoWithTheirKeys(t *testing.T) {
	dir := t.TempDir()
	want := []config.TLSFiles{{Cert: "a.crt", Key: "a.key"}, {Cert: dir}, {Cert: "b.crt", Key: "b.key"}}
	for name, given := range map[string]struct {
		args []string
		file string
	}{
		"flags":          {[]string{"--tls-cert", "a.crt", "--tls-cert", dir, "--tls-cert", "b.crt", "--tls-key", "a.key", "--tls-key", "b.key"}, ""},
		"joined":         {[]string{"--tls-cert", "a.crt," + dir + ", b.crt", "--tls-key", "a.key,b.key"}, ""},
		"a list in YAML": {nil, "tls_cert: [a.crt, " + dir + ", b.crt]\ntls_key: [a.key, b.key]\n"},
	} {
		c, err := load(t, given.args, nil, given.file)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(c.TLS, want) || c.AdminTLS != nil {
			t.Errorf("%s: got %v and %v, want %v and none", name, c.TLS, c.AdminTLS, want)
		}
	}
}

// Guarantee: the URL of a database is shown without its password and its parameters, and neither an
// error nor a format of the settings has them.
func TestDatabaseURLIsNotShown(t *testing.T) {
	for _, tt := range []struct{ url, shown string }{
		{"postgres://keygate:hunter2@db.example:5432/keygate?sslmode=verify-full&sslpassword=hunter2", "postgres://keygate@db.example:5432/keygate"},
		{"postgresql:///keygate?host=a,b&password=hunter2&user=u", "postgresql:///keygate"},
		{"postgres://hunter2%zz@db/keygate", ""},
		{"host=db password=hunter2", ""},
		{"mysql://keygate:hunter2@db/keygate", ""},
	} {
		c, err := load(t, nil, map[string]string{"KEYGATE_DATABASE_URL": tt.url}, "")
		if tt.shown == "" {
			if err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "postgres://user") {
				t.Errorf("%s: error %v, want one that says what to write, without the password", tt.url, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if !c.Shared() || string(c.DatabaseURL) != tt.url {
			t.Errorf("%s: the setting was not taken", tt.url)
		}
		if text := fmt.Sprintf("%v %+v %#v %v", c, *c, *c, c.Values()); strings.Contains(text, "hunter2") || !strings.Contains(text, tt.shown) {
			t.Errorf("the settings are printed as %s, want %s in it and no password", text, tt.shown)
		}
	}
}

// Guarantee: a file is read whatever valid form of YAML its editor writes.
func TestFormsOfTheFile(t *testing.T) {
	for name, content := range map[string]string{
		"YAML 1.2":  "%YAML 1.2\n---\nmax_connections: 100\n",
		"a mark":    "\ufeffmax_connections: 100\n",
		"CRLF":      "# all\r\nmax_connections: 100\r\n",
		"CR":        "# all\rmax_connections: 100\r",
		"a float":   "max_connections: 100.0\n",
		"an alias":  "max_connections_per_address: &n 100\nmax_connections: *n\n",
		"JSON":      `{"max_connections": 1e2}`,
		"a comment": "max_connections: 100 # of all\n...\n",
	} {
		if c, err := load(t, nil, nil, content); err != nil || c.MaxConnections != 100 {
			t.Errorf("%s: got %v, want max_connections 100", name, err)
		}
	}
	for _, empty := range []string{"", "\n", "# nothing\n", "---\n", "null\n", "\ufeff"} {
		if _, err := load(t, nil, nil, empty); err != nil {
			t.Errorf("%q: got %v, want the defaults", empty, err)
		}
	}
}
