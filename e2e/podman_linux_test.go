package e2e

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/keygate/keygate/internal/keygatetest/needtest"
)

// podman runs buildah and podman with a storage and a configuration of their own, in a temporary directory.
type podman struct {
	dir string // storage, configuration, archives
	env []string
	// limits are flags of podman run. By default podman raises the container's limits above the test's
	// limits, without the right to do so.
	limits []string
}

// newPodman returns a podman without images. It needs podman and buildah.
func newPodman(t *testing.T) *podman {
	t.Helper()
	engine := "runc" // crun 1.8, of Debian 12, refuses machines that have both versions of cgroups
	if _, err := exec.LookPath(engine); err != nil {
		engine = "crun"
	}
	for _, program := range []string{"podman", "buildah", "conmon", engine} {
		needtest.Program(t, program, "--no-install-recommends buildah podman runc netavark")
	}
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	p := &podman{dir: dir}
	p.env = append(os.Environ(),
		"CONTAINERS_STORAGE_CONF="+write("storage.conf", fmt.Sprintf("[storage]\ndriver = \"vfs\"\ngraphroot = %q\nrunroot = %q\n", dir+"/storage", dir+"/run")),
		"CONTAINERS_CONF="+write("containers.conf", fmt.Sprintf("[engine]\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"none\"\nruntime = %q\ntmp_dir = %q\n[network]\nnetwork_backend = \"netavark\"\n", engine, dir+"/tmp")),
		// No systemd runs the health check here: the tests do.
		"DISABLE_HC_SYSTEMD=true",
	)
	if out, err := p.run("info"); err != nil {
		t.Skipf("podman cannot run on this machine: %v\n%s", err, out)
	}
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	p.limits = []string{fmt.Sprintf("--ulimit=nofile=%d:%d", files.Cur, files.Max), "--ulimit=nproc=4096:4096"}
	t.Cleanup(func() {
		for _, args := range [][]string{{"rm", "--all", "--force", "--time", "0", "--volumes"}, {"volume", "rm", "--all", "--force"}, {"rmi", "--all", "--force"}} {
			if out, err := p.run(args...); err != nil {
				t.Errorf("podman %s: %v\n%s", strings.Join(args, " "), err, out)
			}
		}
	})
	return p
}

// run runs podman, and returns its whole output without the last line end.
func (p *podman) run(args ...string) (string, error) {
	cmd := exec.Command("podman", args...)
	cmd.Env = p.env
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func (p *podman) must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := p.run(args...)
	if err != nil {
		t.Fatalf("podman %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// build runs deploy/image with the given binary for each architecture, and returns the names and contents of the
// archives that it wrote.
func (p *podman) build(t *testing.T, binaries map[string]string) map[string][]byte {
	t.Helper()
	dir, output := t.TempDir(), t.TempDir()
	platforms := "PLATFORMS="
	for _, arch := range slices.Sorted(maps.Keys(binaries)) {
		platforms += " linux/" + arch
		if err := os.Symlink(binaries[arch], filepath.Join(dir, "keygate-"+arch)); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := imageCommand(append(p.env, platforms, "BINARIES="+dir, "OUTPUT="+output)...); err != nil {
		t.Fatalf("deploy/image: %v\n%s", err, out)
	}
	archives := map[string][]byte{}
	found, err := filepath.Glob(output + "/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range found {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		_, kind, _ := strings.Cut(filepath.Base(path), "_image_")
		archives[kind] = content
	}
	return archives
}

// imageCommand runs deploy/image with an environment, and returns its output.
func imageCommand(env ...string) (string, error) {
	cmd := exec.Command("../deploy/image")
	cmd.Env = env
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}
