package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// checkAlpine checks a package of Alpine against its format: two archives, one after the other. The first has the
// description and the scripts, the second the files.
func checkAlpine(t *testing.T, content []byte) {
	t.Helper()
	rest := bytes.NewReader(content)
	control := segment(t, rest)
	start := len(content) - rest.Len()
	data := segment(t, rest)
	if rest.Len() != 0 {
		t.Errorf("the package has %d bytes after its two archives", rest.Len())
	}

	info := control[".PKGINFO"].content
	for _, want := range []string{"pkgname = keygate\n", "pkgver = 1.2.3_rc1-r1\n", "arch = x86_64\n", fmt.Sprintf("datahash = %x\n", sha256.Sum256(content[start:]))} {
		if !strings.Contains(info, want) {
			t.Errorf("the description of the package has no %q:\n%s", want, info)
		}
	}
	for _, name := range []string{".pre-install", ".post-install", ".post-upgrade", ".pre-deinstall", ".post-deinstall"} {
		if e := control[name]; e.header == nil || e.header.FileInfo().Mode().Perm()&0o100 == 0 || !strings.HasPrefix(e.content, "#!/bin/sh\n") {
			t.Errorf("the package has no script %s that can be run", name)
		}
	}
	for name, want := range map[string]string{
		"usr/bin/keygate":                    "-rwxr-xr-x root/root",
		"etc/init.d/keygate":                 "-rwxr-xr-x root/root",
		"etc/logrotate.d/keygate":            "-rw-r--r-- root/root",
		"etc/keygate/keygate.yaml":           "-rw-r----- root/keygate",
		"var/lib/keygate/":                   "drwx------ keygate/keygate",
		"usr/share/man/man1/keygate-serve.1": "-rw-r--r-- root/root",
	} {
		h := data[name].header
		if h == nil {
			t.Errorf("the package has no %s", name)
		} else if got := fmt.Sprintf("%v %s/%s", h.FileInfo().Mode(), h.Uname, h.Gname); got != want {
			t.Errorf("%s in the package is %q, want %q", name, got, want)
		}
	}
	for name := range data {
		if strings.Contains(name, "systemd") {
			t.Errorf("the package has %s, and Alpine has no systemd", name)
		}
	}
	if script := data["etc/init.d/keygate"].content; !strings.HasPrefix(script, "#!/sbin/openrc-run\n") {
		t.Errorf("the service is not a script of OpenRC: %.80s", script)
	}
}

// entry is a file of an archive.
type entry struct {
	header  *tar.Header
	content string
}

// segment reads one archive of a package. The first archive has no mark of its end.
func segment(t *testing.T, from *bytes.Reader) map[string]entry {
	t.Helper()
	z, err := gzip.NewReader(from)
	if err != nil {
		t.Fatal(err)
	}
	z.Multistream(false)
	all := map[string]entry{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		all[h.Name] = entry{h, string(content)}
	}
	if _, err := io.Copy(io.Discard, z); err != nil {
		t.Fatal(err)
	}
	return all
}

// Guarantee: the scripts of packages, and the service of OpenRC, are correct for the shell that runs them.
func TestScriptsOfPackages(t *testing.T) {
	t.Parallel()
	scripts, err := filepath.Glob("../../deploy/packages/*.sh")
	if err != nil || len(scripts) < 5 {
		t.Fatalf("found the scripts %v, %v", scripts, err)
	}
	for _, path := range append(scripts, "../../deploy/packages/keygate.openrc") {
		if out, err := exec.Command("sh", "-n", path).CombinedOutput(); err != nil {
			t.Errorf("sh -n %s: %v\n%s", path, err, out)
		}
	}
}
