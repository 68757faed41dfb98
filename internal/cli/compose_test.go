package cli

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/keygate/keygate/internal/config"
)

// composeService is the part of a service in a Compose file that the test reads.
type composeService struct {
	Image       string
	Environment map[string]string
	Volumes     []string
	Ports       []string
}

func readDeploy(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile("../../deploy/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// Guarantee: the settings of deploy/compose/cluster.yaml are settings of serve with valid values, no secret
// stands in it, every variable that it needs is in the example, and every node has a name and a volume of
// its own.
func TestComposeFileHasValidSettings(t *testing.T) {
	content := readDeploy(t, "compose/cluster.yaml")
	var file struct {
		Services map[string]composeService
		Volumes  map[string]any
	}
	if err := yaml.Unmarshal([]byte(content), &file); err != nil {
		t.Fatal(err)
	}
	example := readDeploy(t, "compose/cluster.env.example")
	values := map[string]string{"KEYGATE_SECRET_KEY": strings.Repeat("A", 43), "KEYGATE_GATEWAY_DOMAIN": "localhost"}
	variable := regexp.MustCompile(`\$\{(\w+)[:?}-][^}]*\}?`)
	for _, m := range variable.FindAllStringSubmatch(content, -1) {
		if !strings.Contains(example, "\n"+m[1]+"=") {
			t.Errorf("cluster.env.example lacks %s", m[1])
		}
	}
	if got := regexp.MustCompile(`(?m)^(?:POSTGRES|VALKEY|KEYGATE_SECRET)\w*=.+`).FindString(example); got != "" {
		t.Errorf("cluster.env.example has the secret %q", got)
	}
	seen := map[string]bool{}
	for _, name := range []string{"node-1", "node-2", "node-3"} {
		node := file.Services[name]
		fs := pflag.NewFlagSet("serve", pflag.ContinueOnError)
		loader := config.Register(fs)
		env := map[string]string{"KEYGATE_DATA_DIR": "/data"}
		for key, text := range node.Environment {
			env[key] = variable.ReplaceAllStringFunc(text, func(s string) string {
				if v := values[variable.FindStringSubmatch(s)[1]]; v != "" {
					return v
				}
				return "secret"
			})
			if flag := strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(key, "KEYGATE_")), "_", "-"); key != config.SecretKeyVariable && fs.Lookup(flag) == nil {
				t.Errorf("%s sets %s, but serve has no --%s", name, key, flag)
			}
		}
		settings, err := loader.Load(func(key string) (string, bool) { v, ok := env[key]; return v, ok })
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if settings.NodeName != name || node.Image != "keygate" || !slices.Equal(node.Volumes, []string{name + ":/data"}) || seen[settings.NodeName] {
			t.Errorf("%s is %+v", name, node)
		}
		seen[settings.NodeName] = true
		if _, ok := file.Volumes[name]; !ok {
			t.Errorf("there is no volume %s", name)
		}
	}
	for name, s := range file.Services {
		for _, port := range s.Ports {
			if name != "haproxy" || !strings.HasPrefix(port, "127.0.0.1:") {
				t.Errorf("%s publishes %s, want only haproxy to, on the loopback interface", name, port)
			}
		}
	}
	if !strings.Contains(content, "--maxmemory-policy noeviction") {
		t.Error("Valkey may evict keys")
	}
}

// Guarantee: HAProxy asks /readyz of every node on both planes. Where it is installed, it accepts the file.
func TestHAProxyConfiguration(t *testing.T) {
	content := readDeploy(t, "compose/haproxy.cfg")
	for _, backend := range []string{"gateway", "admin"} {
		_, section, found := strings.Cut(content, "\nbackend "+backend+"\n")
		section, _, _ = strings.Cut(section, "\n\n")
		port := map[string]string{"gateway": "8080", "admin": "8081"}[backend]
		for _, line := range []string{
			"option httpchk", "uri /readyz", "expect status 200", "server node-1 node-1:" + port, "server node-2 node-2:" + port, "server node-3 node-3:" + port,
		} {
			if !found || !strings.Contains(section, line) {
				t.Errorf("backend %s lacks %q", backend, line)
			}
		}
	}
	if path, err := exec.LookPath("haproxy"); err == nil {
		if out, err := exec.CommandContext(t.Context(), path, "-c", "-f", "../../deploy/compose/haproxy.cfg").CombinedOutput(); err != nil {
			t.Errorf("haproxy -c: %v\n%s", err, out)
		}
	}
}
