// Command release makes a release of Keygate from a commit: archives and packages for each target, their bills of
// materials, checksums, and a signature of these. The same commit gives the same files, byte for byte, wherever
// it is built (with the same version of Go). docs/releasing.md goes through it.
//
//	release [-version v1.2.3] [-root DIR] [-out DIR] [-targets linux/amd64,...]
//
// With KEYGATE_RELEASE_KEY, the name of a file with a secret key of minisign, and KEYGATE_RELEASE_KEY_PASSWORD it signs
// the checksums.
package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// target is a system and an architecture, such as linux/amd64.
type target struct{ os, arch string }

func (t target) String() string { return t.os + "/" + t.arch }

// allTargets returns what a release is built for.
func allTargets() []target {
	return []target{
		{"linux", "amd64"}, {"linux", "arm64"},
		{"darwin", "amd64"}, {"darwin", "arm64"},
		{"freebsd", "amd64"}, {"freebsd", "arm64"},
		{"windows", "amd64"}, {"windows", "arm64"},
	}
}

// release is what is made, and where.
type release struct {
	root, out string
	version   string // with its v
	commit    string
	time      time.Time // of the commit
	work      string    // a temporary directory
	targets   []target

	// binary returns the path of the binary for a target.
	binary func(target) (string, error)
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	version := flags.String("version", "", "the `version`, such as v1.2.3 or v1.2.3-rc.1 (default: what git describe says of the commit)")
	root := flags.String("root", ".", "the `directory` of the repository")
	out := flags.String("out", "dist", "the `directory` to write to; it is created, and must have nothing but archives of the image, which the checksums then cover")
	only := flags.String("targets", "", "`systems` to build for, such as linux/amd64,linux/arm64 (default: all)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unknown argument %q", flags.Arg(0))
	}
	r, err := newRelease(*root, *out, *version, *only)
	if err != nil {
		return err
	}
	// The key is read first, so that an unreadable key does not waste the whole build.
	key, err := signingKey(os.LookupEnv)
	if err != nil {
		return err
	}
	if r.work, err = os.MkdirTemp("", "keygate-release-"); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(r.work) }() // a temporary directory
	if err := r.make(); err != nil {
		return err
	}
	if err := r.sums(key); err != nil {
		return err
	}
	fmt.Println("The release is in " + r.out)
	return nil
}

// validVersion is a version of semantic versioning with a v, without build metadata, which not all kinds of packages
// can express.
var validVersion = regexp.MustCompile(`^v(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$`)

// newRelease checks the arguments. If they have a version, the working tree must have no changes beyond its commit; else
// the version of the commit says so.
func newRelease(root, out, version, only string) (*release, error) {
	targets := allTargets()
	r := &release{version: version, targets: targets}
	r.binary = r.build
	var err error
	if r.root, err = filepath.Abs(root); err != nil {
		return nil, err
	}
	if r.out, err = filepath.Abs(out); err != nil {
		return nil, err
	}
	if only != "" {
		r.targets = nil
		for _, name := range strings.Split(only, ",") {
			i := slices.IndexFunc(targets, func(t target) bool { return t.String() == strings.TrimSpace(name) })
			if i < 0 {
				return nil, fmt.Errorf("%q is not a target: set TARGETS to some of %s, separated by commas", name, joined(targets))
			}
			r.targets = append(r.targets, targets[i])
		}
	}
	if err := r.identify(); err != nil {
		return nil, err
	}
	if !validVersion.MatchString(r.version) {
		return nil, fmt.Errorf("%q is not a version: set VERSION to one such as v1.2.3 or v1.2.3-rc.1", r.version)
	}
	if err := r.checkOut(); err != nil {
		return nil, err
	}
	if tag, err := r.git("rev-parse", "--quiet", "--verify", "refs/tags/"+version+"^{commit}"); version != "" && err == nil && tag != r.commit {
		return nil, fmt.Errorf("the tag %s is on another commit (%s): check that out, or choose another VERSION", version, tag)
	}
	seconds, err := r.git("log", "-1", "--format=%ct")
	if err != nil {
		return nil, err
	}
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("time of the commit: %w", err)
	}
	r.time = time.Unix(n, 0).UTC()
	return r, nil
}

// identify sets the commit, and the version if it was not given: the tag of the commit, or v1.2.3-4-gabcdef0 for the fourth
// commit after a tag, or v0.0.0-gabcdef0 without a tag. Both end in -dirty if files differ from the commit, which is an error
// for a version that was given.
func (r *release) identify() error {
	changed, err := r.git("status", "--porcelain")
	if err != nil {
		return err
	}
	if r.commit, err = r.git("rev-parse", "HEAD"); err != nil {
		return err
	}
	if r.version != "" {
		if changed != "" {
			return fmt.Errorf("files differ from the commit: commit, restore or remove them first:\n%s", changed)
		}
		return nil
	}
	if r.version, err = r.git("describe", "--tags"); err != nil {
		if r.version, err = r.git("describe", "--tags", "--always"); err != nil {
			return err
		}
		r.version = "v0.0.0-g" + r.version
	}
	if changed != "" {
		r.version, r.commit = r.version+"-dirty", r.commit+"-dirty"
	}
	return nil
}

// checkOut returns an error if the directory to write to has anything but archives of the image of this release.
func (r *release) checkOut() error {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return nil //nolint:nilerr // make creates it, or says why it cannot
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	images := r.images(names)
	if len(images) < len(names) {
		return fmt.Errorf("%s is not empty: remove it first", r.out)
	}
	for _, name := range images {
		if err := r.checkImage(name); err != nil {
			return err
		}
	}
	return nil
}

func joined(all []target) string {
	names := make([]string, len(all))
	for i, t := range all {
		names[i] = t.String()
	}
	return strings.Join(names, ", ")
}

// git returns what a git command prints, without the last line end.
func (r *release) git(args ...string) (string, error) {
	out, err := r.command("git", args, nil)
	return strings.TrimRight(string(out), "\n"), err
}

// command runs a program in the repository and returns what it prints.
func (r *release) command(name string, args, env []string) ([]byte, error) {
	cmd := exec.Command(name, args...) //nolint:gosec // git or go
	cmd.Dir, cmd.Env = r.root, append(os.Environ(), env...)
	var problem bytes.Buffer
	cmd.Stderr = &problem
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, bytes.TrimSpace(problem.Bytes()))
	}
	return out, nil
}

// number is the version without its v.
func (r *release) number() string { return strings.TrimPrefix(r.version, "v") }

// make writes the archives, packages and bills of materials.
func (r *release) make() error {
	if err := os.MkdirAll(r.out, 0o750); err != nil {
		return err
	}
	if err := r.prepare(); err != nil {
		return err
	}
	fmt.Println("manual pages and completions")
	pages := filepath.Join(r.work, "man")
	// For this machine, whatever the environment asks for.
	env := []string{"GOOS=", "GOARCH=", "CGO_ENABLED=0", "SOURCE_DATE_EPOCH=" + strconv.FormatInt(r.time.Unix(), 10), "KEYGATE_VERSION=" + r.version}
	if _, err := r.command("go", []string{"run", "-trimpath", "-buildvcs=false", "./tools/man", pages}, env); err != nil {
		return err
	}
	for _, t := range r.targets {
		fmt.Println(t)
		binary, err := r.binary(t)
		if err != nil {
			return err
		}
		files, err := r.files(t, binary, pages)
		if err != nil {
			return err
		}
		if err := r.archive(t, files); err != nil {
			return err
		}
		if err := r.bill(t, binary); err != nil {
			return err
		}
		if t.os == "linux" {
			if err := r.packages(t, binary, pages); err != nil {
				return err
			}
		}
	}
	return nil
}

// build builds the binary for a target.
func (r *release) build(t target) (string, error) {
	binary := filepath.Join(r.work, t.os+"-"+t.arch, "keygate")
	if t.os == "windows" {
		binary += ".exe"
	}
	const vars = "github.com/keygate/keygate/internal/cli."
	// Without the tables for debuggers, three tenths of the binary. A panic names functions and lines all the same.
	ldflags := "-s -w -X " + vars + "release=" + r.version + " -X " + vars + "releaseOf=" + r.commit + " -X " + vars + "releaseDate=" + r.time.Format(time.RFC3339)
	// What would change the binary is set here, and not taken from the environment.
	env := []string{"CGO_ENABLED=0", "GOOS=" + t.os, "GOARCH=" + t.arch, "GOFLAGS=", "GOEXPERIMENT=", "GOAMD64=v1", "GOARM64=v8.0", "GOFIPS140=off"}
	_, err := r.command("go", []string{"build", "-trimpath", "-buildvcs=false", "-ldflags", ldflags, "-o", binary, "./cmd/keygate"}, env)
	return binary, err
}

// sums writes the checksums of all files, and their signature if there is a key.
func (r *release) sums(key signer) error {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	sums := map[string]string{}
	for _, e := range entries {
		content, err := os.ReadFile(filepath.Join(r.out, e.Name()))
		if err != nil {
			return err
		}
		sums[e.Name()] = fmt.Sprintf("%x  %s\n", sha256.Sum256(content), e.Name())
	}
	var list bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		list.WriteString(sums[name])
	}
	path := filepath.Join(r.out, "SHA256SUMS")
	if err := writeFile(path, list.Bytes()); err != nil {
		return err
	}
	if key == nil {
		fmt.Println("SHA256SUMS is not signed: KEYGATE_RELEASE_KEY names no key")
		return nil
	}
	return writeFile(path+".minisig", key(list.Bytes(), "Keygate "+r.version))
}

// writeFile writes a file that everyone may read, and that does not exist.
func writeFile(path string, content []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // it is made to be passed on
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Close())
}
