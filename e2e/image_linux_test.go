package e2e

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/keygatetest/porttest"
)

// Guarantee: docs/containers.md. The image in the archive says what it is. It runs with a read-only root, without a
// capability and as an arbitrary user, is healthy by its own health check, serves, stops in order, and keeps its
// data in the volume.
func TestImage(t *testing.T) {
	t.Parallel()
	p := newPodman(t)
	archive := filepath.Join(p.dir, "image.tar")
	if err := os.WriteFile(archive, p.build(t, map[string]string{runtime.GOARCH: binary})[runtime.GOARCH+".tar"], 0o600); err != nil {
		t.Fatal(err)
	}
	p.must(t, "rmi", "--all", "--force")
	_, image, _ := strings.Cut(p.must(t, "load", "--quiet", "--input", archive), "Loaded image: ")
	if out, err := p.run(append(append([]string{"run", "--rm", "--network=host"}, p.limits...), image, "version")...); err != nil || !strings.Contains(out, "keygate ") {
		t.Skipf("the kernel or the sandbox of this machine does not let podman run a container: %v\n%s", err, out)
	}
	t.Run("says what it is", func(t *testing.T) { p.describes(t, image) })
	t.Run("refuses a wrong setting", func(t *testing.T) { p.refuses(t, image) })
	t.Run("runs as its own user", func(t *testing.T) {
		t.Parallel()
		p.keepsData(t, image, "own", "65532", "65532")
	})
	t.Run("runs as an arbitrary user", func(t *testing.T) {
		t.Parallel()
		if os.Geteuid() != 0 {
			t.Skip("only root may run a container as any user")
		}
		p.keepsData(t, image, "arbitrary", "1000730000", "0", "--user=1000730000:0")
	})
}

// Guarantee: docs/containers.md. The same commit and binaries give the same archives, byte for byte. The OCI archive
// has the images of both architectures.
func TestImageIsReproducible(t *testing.T) {
	t.Parallel()
	p := newPodman(t)
	small := filepath.Join(p.dir, "small") // never run
	if err := os.WriteFile(small, []byte("a binary"), 0o600); err != nil {
		t.Fatal(err)
	}
	binaries := map[string]string{"amd64": small, "arm64": small}
	first, second := p.build(t, binaries), p.build(t, binaries)
	for _, kind := range []string{"amd64.tar", "arm64.tar", "oci.tar"} {
		if first[kind] == nil || !bytes.Equal(first[kind], second[kind]) {
			t.Errorf("two builds wrote the archive %s with %d and %d bytes, which are not the same", kind, len(first[kind]), len(second[kind]))
		}
	}
	for _, arch := range []string{"amd64", "arm64"} {
		if want := `"architecture":"` + arch + `","os":"linux"`; !bytes.Contains(first["oci.tar"], []byte(want)) {
			t.Errorf("the OCI archive has no image with %s", want)
		}
	}
}

// describes checks the labels and the configuration of the image.
func (p *podman) describes(t *testing.T, image string) {
	inspect := func(format string) string { return p.must(t, "image", "inspect", "--format", format, image) }
	for format, want := range map[string]string{
		"{{.Architecture}}":                         runtime.GOARCH,
		"{{.User}}":                                 "65532:65532",
		"{{json .HealthCheck.Test}}":                `["CMD","/keygate","healthcheck"]`,
		"{{json .Config.Volumes}}":                  `{"/data":{}}`,
		"{{json .Config.Entrypoint}}":               `["/keygate"]`,
		"{{json .Config.Cmd}}":                      `["serve"]`,
		"{{index .Config.Env 1}}":                   "KEYGATE_DATA_DIR=/data",
		"{{slice .Config.Env 2}}":                   "[KEYGATE_GATEWAY_ADDR=:8080 KEYGATE_OPS_ADDR=:8082]", // not the address of the management API
		`{{index .Labels "` + label + `title"}}`:    "Keygate",
		`{{index .Labels "` + label + `licenses"}}`: "Apache-2.0",
		`{{index .Labels "` + label + `version"}}`:  image[strings.LastIndexByte(image, ':')+1:],
	} {
		if got := inspect(format); got != want {
			t.Errorf("%s of the image is %s, want %s", format, got, want)
		}
	}
	for _, name := range []string{"description", "revision", "created", "source", "documentation"} {
		if inspect(`{{index .Labels "`+label+name+`"}}`) == "" {
			t.Errorf("the image has no label %s%s", label, name)
		}
	}
	if labelled, created := inspect(`{{index .Labels "`+label+`created"}}`), inspect(`{{.Created.UTC.Format "2006-01-02T15:04:05Z"}}`); labelled != created {
		t.Errorf("the image says that it was created at %s, and its label %s", created, labelled)
	}
}

const label = "org.opencontainers.image."

// refuses starts a container with a setting that has no valid value.
func (p *podman) refuses(t *testing.T, image string) {
	args := append([]string{"run", "--name=wrong", "--network=host", "--read-only", "--env=KEYGATE_GATEWAY_ADDR=nowhere"}, p.limits...)
	_, _ = p.run(append(args, image)...) // its status is the container's
	if got := p.must(t, "inspect", "--format={{.State.ExitCode}}", "wrong"); got != "1" && got != "2" {
		t.Errorf("the container ended with %s, want 1 or 2", got)
	}
	if got := p.must(t, "logs", "wrong"); !strings.Contains(got, "KEYGATE_GATEWAY_ADDR") || !strings.Contains(got, "nowhere") {
		t.Errorf("the log does not name the setting and its value:\n%s", got)
	}
}

// keepsData serves in a container with a new volume, stops it, and serves the same key in another container
// with the volume.
func (p *podman) keepsData(t *testing.T, image, name, uid, gid string, flags ...string) {
	flags = append(flags, "--volume="+name+":/data")
	c := p.start(t, image, name+"-1", flags...)
	c.isConfined(uid, gid)
	c.keygate("gateways", "create", "--name=site", "--upstream-url="+newEcho(t))
	c.keygate("routes", "create", "--gateway=site", "--path=/*", "--method=GET")
	key := c.keygate("keys", "create", "--name=caller", "--scope=read", "--jq=.key")
	c.wantStatus(http.StatusOK, key)
	c.wantStatus(http.StatusUnauthorized, "kg_unknown")
	c.stop()
	if out := p.must(t, "logs", name+"-1"); strings.Contains(out, "level=WARN") || strings.Contains(out, "level=ERROR") {
		t.Errorf("the log has a warning:\n%s", out)
	}
	c = p.start(t, image, name+"-2", flags...)
	c.wantStatus(http.StatusOK, key)
	c.stop()
}

// container is a running container of the image.
type container struct {
	t       *testing.T
	p       *podman
	name    string
	gateway string // host:port
}

// start starts a container as a careful operator would, and waits until its health check succeeds.
func (p *podman) start(t *testing.T, image, name string, flags ...string) *container {
	t.Helper()
	c := &container{t, p, name, porttest.Reserve(t)}
	admin := porttest.Reserve(t)
	args := []string{
		"run", "--detach", "--name=" + name, "--network=host", "--read-only", "--read-only-tmpfs=false", "--cap-drop=all", "--security-opt=no-new-privileges",
		"--env=KEYGATE_GATEWAY_ADDR=" + c.gateway, "--env=KEYGATE_OPS_ADDR=" + porttest.Reserve(t),
		"--env=KEYGATE_ADMIN_ADDR=" + admin, "--env=KEYGATE_URL=http://" + admin,
		"--env=KEYGATE_MAX_CONNECTIONS=1000",
	}
	p.must(t, append(append(append(args, p.limits...), flags...), image)...)
	var problem string
	healthy := awaittest.Holds(func() bool {
		out, err := p.run("healthcheck", "run", name)
		problem = out
		return err == nil || p.must(t, "inspect", "--format={{.State.Running}}", name) != "true"
	})
	if status := p.must(t, "inspect", "--format={{.State.Health.Status}}", name); !healthy || status != "healthy" {
		t.Fatalf("the container is %s: %s\n%s", status, problem, p.must(t, "logs", name))
	}
	return c
}

// keygate runs a command in the container with the admin key of its volume.
func (c *container) keygate(args ...string) string {
	c.t.Helper()
	return c.p.must(c.t, append([]string{"exec", c.name, "/keygate", "--api-key-file=/data/admin.key"}, args...)...)
}

func (c *container) wantStatus(want int, key string) {
	c.t.Helper()
	if got := status("http://"+c.gateway+"/", key); got != want {
		c.t.Errorf("a request through %s has the status %d, want %d\n%s", c.name, got, want, c.p.must(c.t, "logs", c.name))
	}
}

// stop stops the container, which must end in order before it would be killed.
func (c *container) stop() {
	c.t.Helper()
	c.p.must(c.t, "stop", "--time="+strconv.Itoa(int(awaittest.Timeout.Seconds())), c.name)
	if got := c.p.must(c.t, "inspect", "--format={{.State.ExitCode}}", c.name); got != "0" {
		c.t.Errorf("the container ended with status %s, want 0\n%s", got, c.p.must(c.t, "logs", c.name))
	}
}

// isConfined checks that the process has no right beyond its user's, and that what it wrote is only for
// that user.
func (c *container) isConfined(uid, gid string) {
	c.t.Helper()
	content, err := os.ReadFile("/proc/" + c.p.must(c.t, "inspect", "--format={{.State.Pid}}", c.name) + "/status")
	if err != nil {
		c.t.Fatal(err)
	}
	none := "0000000000000000"
	wants := map[string]string{"CapPrm": none, "CapEff": none, "CapBnd": none, "NoNewPrivs": "1"}
	if os.Geteuid() == 0 { // else these are other numbers outside of the container
		wants["Uid"], wants["Gid"] = strings.Join([]string{uid, uid, uid, uid}, "\t"), strings.Join([]string{gid, gid, gid, gid}, "\t")
	}
	for name, want := range wants {
		if !strings.Contains(string(content), "\n"+name+":\t"+want+"\n") {
			c.t.Errorf("%s of the process is not %s:\n%s", name, want, content)
		}
	}
	if os.Geteuid() != 0 {
		return
	}
	volume := c.p.must(c.t, "inspect", "--format={{(index .Mounts 0).Source}}", c.name)
	for _, file := range []string{"keygate.db", "admin.key", "secret.key"} {
		info, err := os.Stat(filepath.Join(volume, file))
		if err != nil {
			c.t.Error(err)
			continue
		}
		if stat, ok := info.Sys().(*syscall.Stat_t); !ok || strconv.Itoa(int(stat.Uid)) != uid || info.Mode().Perm() != 0o600 {
			c.t.Errorf("%s in the volume belongs to %d with mode %v, want %s with mode 0600", file, stat.Uid, info.Mode(), uid)
		}
	}
}

// Guarantee: if the image cannot be built, the error says what to do.
func TestImageErrors(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ env, want string }{
		"an unknown platform":      {"PLATFORMS=linux/s390x", "set PLATFORMS to linux/amd64, linux/arm64 or both"},
		"a version that is no tag": {"VERSION=v1+2", `VERSION "v1+2" cannot be the tag of an image`},
		"no program to build it":   {"PATH=" + onlyGit(t), "neither buildah nor podman is installed: install one (Debian: apt-get install buildah)"},
		"no certificates":          {"CA_FILE=/nowhere", "install the package ca-certificates, or set CA_FILE"},
		"a missing binary":         {"BINARIES=/nowhere", "BINARIES lacks keygate-amd64"},
	} {
		out, err := imageCommand(append(os.Environ(), "OUTPUT="+t.TempDir(), test.env)...)
		if err == nil || !strings.Contains(out, test.want) {
			t.Errorf("%s: deploy/image ended with %v, want an error with %q:\n%s", name, err, test.want, out)
		}
	}
}

// onlyGit returns a PATH with what deploy/image needs before it looks for buildah.
func onlyGit(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, program := range []string{"bash", "env", "git", "dirname", "cat", "date", "id"} {
		for _, bin := range []string{"/usr/bin/", "/bin/"} {
			if _, err := os.Stat(bin + program); err == nil {
				_ = os.Symlink(bin+program, filepath.Join(dir, program))
			}
		}
	}
	return dir
}
