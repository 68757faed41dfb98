package cli

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/keygate/keygate/internal/config"
)

// composeService is the part of a service in a Compose file that the tests read.
type composeService struct {
	Image           string
	ReadOnly        bool     `yaml:"read_only"`
	CapDrop         []string `yaml:"cap_drop"`
	CapAdd          []string `yaml:"cap_add"`
	SecurityOpt     []string `yaml:"security_opt"`
	Privileged      bool
	StopGracePeriod string `yaml:"stop_grace_period"`
	Environment     map[string]string
	Volumes         []string
	Ports           []string
	Healthcheck     any
}

// composeFile is a Compose file.
type composeFile struct {
	content  string
	Services map[string]composeService
	Volumes  map[string]any
}

// composeVariable is a variable in a Compose file, with its default or its error.
var composeVariable = regexp.MustCompile(`\$\{(\w+)(?::[-?]([^}]*))?\}`)

func readCompose(t *testing.T, name string) composeFile {
	t.Helper()
	file := composeFile{content: readDeploy(t, "compose/"+name)}
	if err := yaml.Unmarshal([]byte(file.content), &file); err != nil {
		t.Fatal(err)
	}
	return file
}

func readDeploy(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile("../../deploy/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// settings loads the environment of a service as serve would, and checks that the service is confined, has the
// health check of the image, and may drain.
func (s composeService) settings(t *testing.T, name string) *config.Config {
	t.Helper()
	fs := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	loader := config.Register(fs)
	// The first variables are the image's.
	env := map[string]string{"KEYGATE_DATA_DIR": "/data", "KEYGATE_GATEWAY_ADDR": ":8080", "KEYGATE_OPS_ADDR": ":8082"}
	values := map[string]string{"KEYGATE_SECRET_KEY": strings.Repeat("A", 43), "KEYGATE_GATEWAY_DOMAIN": "localhost"}
	for key, text := range s.Environment {
		env[key] = composeVariable.ReplaceAllStringFunc(text, func(s string) string {
			if v := values[composeVariable.FindStringSubmatch(s)[1]]; v != "" {
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
		t.Fatalf("%s: %v", name, err)
	}
	if !s.ReadOnly || s.Privileged || len(s.CapAdd) != 0 || !slices.Equal(s.CapDrop, []string{"ALL"}) || !slices.Equal(s.SecurityOpt, []string{"no-new-privileges:true"}) {
		t.Errorf("%s is not read-only, without a capability and without new privileges: %+v", name, s)
	}
	if s.Image != "${KEYGATE_IMAGE:-localhost/keygate:latest}" || s.Healthcheck != nil {
		t.Errorf("%s has the image %s and the health check %v, want that of the image", name, s.Image, s.Healthcheck)
	}
	drain := settings.DrainDelay + settings.DrainTimeout
	if grace, err := time.ParseDuration(s.StopGracePeriod); err != nil || grace <= drain {
		t.Errorf("%s is killed after %s (%v), want more than the %v of its drain", name, s.StopGracePeriod, err, drain)
	}
	return settings
}

// Guarantee: the settings of deploy/compose/keygate.yaml are settings of serve with valid values, it publishes ports on
// the loopback interface only, and its data are in a volume. No two containers of it can use the volume.
func TestComposeFileOfOneNode(t *testing.T) {
	file := readCompose(t, "keygate.yaml")
	node := file.Services["keygate"]
	node.settings(t, "keygate")
	if _, ok := file.Volumes["data"]; !ok || !slices.Equal(node.Volumes, []string{"data:/data"}) || len(file.Services) != 1 {
		t.Errorf("want one service with the volume data: %+v", file)
	}
	if want := []string{"127.0.0.1:${KEYGATE_PORT:-8080}:8080", "127.0.0.1:${KEYGATE_ADMIN_PORT:-8081}:8081"}; !slices.Equal(node.Ports, want) {
		t.Errorf("the published ports are %q, want %q", node.Ports, want)
	}
	if !strings.Contains(file.content, "\n    container_name: keygate ") {
		t.Error("the container has no fixed name, which lets only one run")
	}
}

// Guarantee: the settings of deploy/compose/cluster.yaml are settings of serve with valid values, no secret
// stands in it, every variable that it needs is in the example, every node has a name and a volume of its own, and
// no service may gain privileges.
func TestComposeFileOfTheCluster(t *testing.T) {
	file := readCompose(t, "cluster.yaml")
	example := readDeploy(t, "compose/cluster.env.example")
	for _, m := range composeVariable.FindAllStringSubmatch(file.content, -1) {
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
		settings := node.settings(t, name)
		if settings.NodeName != name || !slices.Equal(node.Volumes, []string{name + ":/data"}) || seen[settings.NodeName] {
			t.Errorf("%s is %+v", name, node)
		}
		seen[settings.NodeName] = true
		if _, ok := file.Volumes[name]; !ok {
			t.Errorf("there is no volume %s", name)
		}
	}
	for name, s := range file.Services {
		if !slices.Equal(s.SecurityOpt, []string{"no-new-privileges:true"}) {
			t.Errorf("%s may gain privileges", name)
		}
		for _, port := range s.Ports {
			if name != "haproxy" || !strings.HasPrefix(port, "127.0.0.1:") {
				t.Errorf("%s publishes %s, want only haproxy to, on the loopback interface", name, port)
			}
		}
	}
	if !strings.Contains(file.content, "--maxmemory-policy noeviction") {
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
