package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"crypto/sha256"
	"debug/buildinfo"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"aead.dev/minisign"
	"github.com/goreleaser/nfpm/v2"
)

// clone makes a repository, in a directory of its own, whose only commit has the files of this working tree. The commit
// is the same wherever it is made.
func clone(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "keygate")
	list, err := exec.Command("git", "-C", "../..", "ls-files", "-co", "--exclude-standard", "-z").Output()
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.SplitSeq(strings.TrimRight(string(list), "\x00"), "\x00") {
		content, err := os.ReadFile(filepath.Join("..", "..", name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed, and not yet committed
		}
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(filepath.Join("..", "..", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), content, info.Mode().Perm()); err != nil {
			t.Fatal(err)
		}
	}
	git(t, dir, "init", "--quiet")
	git(t, dir, "add", "--all")
	git(t, dir, "commit", "--quiet", "--message=a commit")
	return dir
}

func git(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command("git", args...)
	const date = "2026-11-01T10:20:30Z"
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_AUTHOR_DATE="+date, "GIT_COMMITTER_DATE="+date, "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

// small builds a small program once, which stands in for keygate in tests where only the packing matters.
func small(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{"go.mod": "module github.com/keygate/keygate\n", "main.go": "package main\n\nfunc main() {}\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", "build", "-trimpath", "-o", "keygate", ".")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return filepath.Join(dir, "keygate")
}

// made makes a release with a stand-in for the binary, and returns the release's files.
func made(t *testing.T, root, binary string, key signer, only string) map[string][]byte {
	t.Helper()
	r, err := newRelease(root, filepath.Join(t.TempDir(), "dist"), "v1.2.3-rc.1", only)
	if err != nil {
		t.Fatal(err)
	}
	r.work = t.TempDir()
	r.binary = func(t target) (string, error) {
		dir := filepath.Join(r.work, t.os+"-"+t.arch)
		content, err := os.ReadFile(binary)
		if err != nil {
			return "", err
		}
		path := filepath.Join(dir, filepath.Base(binary))
		if t.os == "windows" {
			path += ".exe"
		}
		return path, errors.Join(os.MkdirAll(dir, 0o750), os.WriteFile(path, content, 0o600))
	}
	if err := r.make(); err != nil {
		t.Fatal(err)
	}
	if err := r.sums(key); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(r.out)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]byte{}
	for _, e := range entries {
		if all[e.Name()], err = os.ReadFile(filepath.Join(r.out, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// Guarantee: docs/releasing.md. The same commit gives the same files, byte for byte, in two different directories,
// and the checksums and their signature are right.
func TestReleaseIsReproducible(t *testing.T) {
	t.Parallel()
	public, secret, err := minisign.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	text, err := secret.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	key, err := signingKey(func(name string) (string, bool) { return path, name == "KEYGATE_RELEASE_KEY" })
	if err != nil {
		t.Fatal(err)
	}

	binary := small(t)
	first, second := made(t, clone(t), binary, key, ""), made(t, clone(t), binary, key, "")
	var names []string
	for name, content := range first {
		if names = append(names, name); !bytes.Equal(content, second[name]) {
			t.Errorf("%s differs between two builds", name)
		}
	}
	slices.Sort(names)
	if want := wantFiles(); !slices.Equal(names, want) || len(second) != len(first) {
		t.Errorf("got the files\n%s\nwant\n%s", strings.Join(names, "\n"), strings.Join(want, "\n"))
	}
	var sums strings.Builder
	for _, name := range names {
		if !strings.HasPrefix(name, "SHA256SUMS") {
			fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(first[name]), name)
		}
	}
	if got := string(first["SHA256SUMS"]); got != sums.String() {
		t.Errorf("SHA256SUMS is\n%swant\n%s", got, sums.String())
	}
	if !minisign.Verify(public, first["SHA256SUMS"], first["SHA256SUMS.minisig"]) {
		t.Error("the signature of SHA256SUMS is not valid")
	}
	if minisign.Verify(public, append(first["SHA256SUMS"], '\n'), first["SHA256SUMS.minisig"]) {
		t.Error("the signature is valid for other checksums")
	}
	checkArchives(t, first)
	checkPackages(t, first)
	checkAlpine(t, first["keygate_1.2.3_rc1-r1_x86_64.apk"])
}

// Guarantee: docs/releasing.md. A key with a password signs with that password, and the error without it names both
// variables and not the key.
func TestKeyWithPassword(t *testing.T) {
	t.Parallel()
	public, secret, err := minisign.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	text, err := minisign.EncryptKey("a password", secret)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"KEYGATE_RELEASE_KEY": path, "KEYGATE_RELEASE_KEY_PASSWORD": "a password"}
	lookup := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
	key, err := signingKey(lookup)
	if err != nil {
		t.Fatal(err)
	}
	if message := []byte("a message"); !minisign.Verify(public, message, key(message, "a comment")) {
		t.Error("the signature is not valid")
	}
	delete(env, "KEYGATE_RELEASE_KEY_PASSWORD")
	_, err = signingKey(lookup)
	if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "KEYGATE_RELEASE_KEY_PASSWORD") || strings.Contains(err.Error(), string(text[60:80])) {
		t.Errorf("without the password the error is %v, want one that names it and the file", err)
	}
}

// wantFiles are the names of the files of a release.
func wantFiles() []string {
	names := []string{
		"SHA256SUMS", "SHA256SUMS.minisig",
		"keygate-1.2.3~rc.1-1.aarch64.rpm", "keygate-1.2.3~rc.1-1.x86_64.rpm",
		"keygate_1.2.3_rc1-r1_aarch64.apk", "keygate_1.2.3_rc1-r1_x86_64.apk",
		"keygate_1.2.3~rc.1-1_amd64.deb", "keygate_1.2.3~rc.1-1_arm64.deb",
	}
	for _, t := range allTargets() {
		name := "keygate_1.2.3-rc.1_" + t.os + "_" + t.arch
		archive := name + ".tar.gz"
		if t.os == "windows" {
			archive = name + ".zip"
		}
		names = append(names, archive, name+".cdx.json")
	}
	slices.Sort(names)
	return names
}

// checkArchives checks what an archive of each kind has.
func checkArchives(t *testing.T, release map[string][]byte) {
	t.Helper()
	const folder = "keygate_1.2.3-rc.1_linux_amd64"
	modes := map[string]int64{}
	z, err := gzip.NewReader(bytes.NewReader(release[folder+".tar.gz"]))
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		modes[h.Name] = h.Mode
		if h.Uid != 0 || h.Gid != 0 || h.ModTime.UTC().Format("2006-01-02T15:04:05") != "2026-11-01T10:20:30" {
			t.Errorf("%s belongs to %d:%d and is of %v, want 0:0 and the time of the commit", h.Name, h.Uid, h.Gid, h.ModTime)
		}
	}
	for name, mode := range map[string]int64{
		"keygate": 0o755, "LICENSE": 0o644, "README.md": 0o644, "keygate.yaml": 0o644, "systemd/keygate.service": 0o644,
		"CHANGELOG.md": 0o644, "SECURITY.md": 0o644, "docs/getting-started.md": 0o644, "docs/adr/0022-helm-chart.md": 0o644,
		"deploy/grafana/alerts.yaml": 0o644, "deploy/grafana/dashboard.json": 0o644,
		"completions/keygate.bash": 0o644, "completions/_keygate": 0o644, "completions/keygate.fish": 0o644, "man1/keygate-keys-create.1": 0o644,
	} {
		if got, ok := modes[folder+"/"+name]; !ok || got != mode {
			t.Errorf("%s in the archive: there %v, mode %o, want %o", name, ok, got, mode)
		}
	}
	packed := release["keygate_1.2.3-rc.1_windows_amd64.zip"]
	zipped, err := zip.NewReader(bytes.NewReader(packed), int64(len(packed)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := zipped.Open("keygate_1.2.3-rc.1_windows_amd64/keygate.exe"); err != nil {
		t.Error(err)
	}
}

// checkPackages checks owners and modes of what the Debian package has.
func checkPackages(t *testing.T, release map[string][]byte) {
	t.Helper()
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Logf("dpkg-deb is not installed, so the Debian package was not looked into: %v", err)
		return
	}
	path := filepath.Join(t.TempDir(), "keygate.deb")
	if err := os.WriteFile(path, release["keygate_1.2.3~rc.1-1_amd64.deb"], 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("dpkg-deb", "--contents", path).Output()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		got[f[len(f)-1]] = f[0] + " " + f[1]
	}
	for name, want := range map[string]string{
		"./usr/bin/keygate":                               "-rwxr-xr-x root/root",
		"./etc/keygate/keygate.yaml":                      "-rw-r----- root/keygate",
		"./var/lib/keygate/":                              "drwx------ keygate/keygate",
		"./usr/lib/systemd/system/keygate.service":        "-rw-r--r-- root/root",
		"./usr/lib/systemd/system/keygate.socket":         "-rw-r--r-- root/root",
		"./usr/share/man/man1/keygate-serve.1":            "-rw-r--r-- root/root",
		"./usr/share/zsh/site-functions/_keygate":         "-rw-r--r-- root/root",
		"./usr/share/bash-completion/completions/keygate": "-rw-r--r-- root/root",
		"./usr/share/doc/keygate/README.md":               "-rw-r--r-- root/root",
		"./usr/share/doc/keygate/docs/getting-started.md": "-rw-r--r-- root/root",

		"./usr/share/doc/keygate/deploy/grafana/alerts.yaml":    "-rw-r--r-- root/root",
		"./usr/share/doc/keygate/deploy/grafana/dashboard.json": "-rw-r--r-- root/root",
	} {
		if got[name] != want {
			t.Errorf("%s in the Debian package is %q, want %q", name, got[name], want)
		}
	}
	unit, err := exec.Command("sh", "-c", `dpkg-deb --fsys-tarfile "$0" | tar -xO ./usr/lib/systemd/system/keygate.service`, path).Output()
	if err != nil || !strings.Contains(string(unit), "\nExecStart=/usr/bin/keygate serve --config /etc/keygate/keygate.yaml\n") {
		t.Errorf("the unit of the Debian package does not start /usr/bin/keygate (%v):\n%s", err, unit)
	}
	if !strings.Contains(string(unit), "\nRestart=always\n") {
		t.Errorf("the unit does not restart the server after any end:\n%s", unit)
	}
	conffiles, err := exec.Command("dpkg-deb", "--info", path, "conffiles").Output()
	if err != nil || string(conffiles) != "/etc/keygate/keygate.yaml\n" {
		t.Errorf("the configuration files of the Debian package are %q (%v)", conffiles, err)
	}
}

// Guarantee: docs/releasing.md. The binary is the same in two different directories. It says its version, commit and
// date, and its bill of materials has the modules that are in it. It has no tables for debuggers, and still the names of
// its functions, for panics.
func TestBinaryIsReproducible(t *testing.T) {
	t.Parallel()
	host := target{"linux", runtime.GOARCH}
	build := func() (*release, string) {
		r, err := newRelease(clone(t), t.TempDir(), "v1.2.3", host.String())
		if err != nil {
			t.Fatal(err)
		}
		r.work = t.TempDir()
		binary, err := r.build(host)
		if err != nil {
			t.Fatal(err)
		}
		return r, binary
	}
	_, first := build()
	r, second := build()
	a, err := os.ReadFile(first)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(second)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a, b) {
		t.Error("the binaries of two directories differ")
	}

	tables, err := elf.Open(first)
	if err != nil {
		t.Fatal(err)
	}
	defer tables.Close()
	if tables.Section(".symtab") != nil || tables.Section(".debug_info") != nil || !bytes.Contains(a, []byte("github.com/keygate/keygate/internal/control.(*Service).RevokeKey")) {
		t.Error("the binary has tables for debuggers, or not the names of its functions")
	}

	if runtime.GOOS == "linux" {
		out, err := exec.Command(first, "version", "--output=json").Output()
		var v struct{ Version, Commit, Date string }
		if err != nil || json.Unmarshal(out, &v) != nil || v.Version != "v1.2.3" || v.Commit != r.commit || v.Date != "2026-11-01T10:20:30Z" {
			t.Errorf("keygate version printed %s (%v), want v1.2.3, %s and the time of the commit", out, err, r.commit)
		}
	}

	if err := r.bill(host, second); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(r.out, "keygate_1.2.3_linux_"+runtime.GOARCH+".cdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	var bill struct {
		SpecVersion string
		Components  []struct{ Name, Version, PURL string }
	}
	if err := json.Unmarshal(content, &bill); err != nil {
		t.Fatal(err)
	}
	info, err := buildinfo.ReadFile(second)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"std@" + info.GoVersion}
	for _, m := range info.Deps {
		want = append(want, m.Path+"@"+m.Version)
	}
	var got []string
	for _, c := range bill.Components {
		got = append(got, c.Name+"@"+c.Version)
	}
	if !slices.Equal(got, want) || len(got) < 10 || bill.SpecVersion != "1.6" {
		t.Errorf("the bill (%s) has\n%v\nwant\n%v", bill.SpecVersion, got, want)
	}
}

// Guarantee: docs/releasing.md. Without a version, a release has that of its commit: its tag, or the last tag before it, or
// none, and it says if files differ from the commit. Each kind of package can express it.
func TestVersionOfTheCommit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	git(t, dir, "init", "--quiet")
	check := func(want, alpine string) {
		t.Helper()
		r, err := newRelease(dir, filepath.Join(t.TempDir(), "dist"), "", "")
		if err != nil {
			t.Fatal(err)
		}
		if !regexp.MustCompile("^"+want+"$").MatchString(r.version) || strings.HasSuffix(r.commit, "-dirty") != strings.HasSuffix(want, "-dirty") {
			t.Errorf("got the version %s of %s, want %s", r.version, r.commit, want)
		}
		info := nfpm.WithDefaults(r.packageInfo("apk", target{"linux", "amd64"}, "", ""))
		if got := r.alpinePrerelease(info.Prerelease); got != alpine {
			t.Errorf("%s: got %q for Alpine, want %q", r.version, got, alpine)
		}
	}
	git(t, dir, "commit", "--quiet", "--allow-empty", "--message=first")
	check("v0.0.0-g[0-9a-f]{7,}", "git20261101102030")
	git(t, dir, "tag", "v1.0.0")
	check("v1.0.0", "")
	git(t, dir, "commit", "--quiet", "--allow-empty", "--message=second")
	check("v1.0.0-1-g[0-9a-f]{7,}", "git20261101102030")
	git(t, dir, "tag", "v1.1.0-rc.1")
	check("v1.1.0-rc.1", "rc1")
	if err := os.WriteFile(filepath.Join(dir, "new"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	check("v1.1.0-rc.1-dirty", "git20261101102030")
}

// Guarantee: if no release can be made, the error says what to do, and nothing is written.
func TestReleaseErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	git(t, dir, "init", "--quiet")
	git(t, dir, "commit", "--quiet", "--allow-empty", "--message=first")
	git(t, dir, "tag", "v1.0.0")
	git(t, dir, "commit", "--quiet", "--allow-empty", "--message=second")
	dirty := t.TempDir()
	git(t, dirty, "init", "--quiet")
	git(t, dirty, "commit", "--quiet", "--allow-empty", "--message=first")
	if err := os.WriteFile(filepath.Join(dirty, "new"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	nightly := t.TempDir()
	git(t, nightly, "init", "--quiet")
	git(t, nightly, "commit", "--quiet", "--allow-empty", "--message=first")
	git(t, nightly, "tag", "nightly")
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "old"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ args, want string }{
		"a tag of no version":  {"-root " + nightly, `"nightly" is not a version: set VERSION to one such as v1.2.3`},
		"a version without v":  {"-root " + dir + " -version 1.2.3", `"1.2.3" is not a version`},
		"half a version":       {"-root " + dir + " -version v1.2", `"v1.2" is not a version`},
		"build metadata":       {"-root " + dir + " -version v1.2.3+x", `"v1.2.3+x" is not a version`},
		"an unknown target":    {"-root " + dir + " -version v1.2.3 -targets linux/amd64,plan9/386", `"plan9/386" is not a target: set TARGETS to some of linux/amd64, linux/arm64,`},
		"a changed tree":       {"-root " + dirty + " -version v1.2.3", "files differ from the commit: commit, restore or remove them first:\n?? new"},
		"a tag that is used":   {"-root " + dir + " -version v1.0.0", "the tag v1.0.0 is on another commit"},
		"no repository":        {"-root " + t.TempDir() + " -version v1.2.3", "not a git repository"},
		"a directory in use":   {"-root " + dir + " -version v1.2.3 -out " + full, full + " is not empty: remove it first"},
		"an argument too many": {"-root " + dir + " -version v1.2.3 more", `unknown argument "more"`},
	} {
		args := strings.Fields(test.args)
		out := filepath.Join(t.TempDir(), "dist")
		if !slices.Contains(args, "-out") {
			args = append([]string{"-out", out}, args...)
		}
		if err := run(args); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got the error %v, want %q", name, err, test.want)
		}
		if _, err := os.Stat(out); err == nil {
			t.Errorf("%s: something was written", name)
		}
	}
	missing := func(name string) (string, bool) { return "/nowhere", name == "KEYGATE_RELEASE_KEY" }
	if _, err := signingKey(missing); err == nil || !strings.Contains(err.Error(), "KEYGATE_RELEASE_KEY: open /nowhere") {
		t.Errorf("with a key that is missing the error is %v", err)
	}
	none := func(string) (string, bool) { return "", false }
	if key, err := signingKey(none); key != nil || err != nil {
		t.Errorf("without a key: got a key %v and the error %v, want neither", key != nil, err)
	}
}
