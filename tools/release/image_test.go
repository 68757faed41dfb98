package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// imageArchive returns an archive of an image with a layer and a configuration.
func imageArchive(t *testing.T, config string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, content := range map[string][]byte{"layer.tar": make([]byte, maxImageConfig+1), "config.json": []byte(config)} {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Guarantee: docs/releasing.md. The checksums of a release cover the archives of its image that exist before the
// release is made. An archive of another version or commit, or a damaged one, is an error.
func TestReleaseCoversItsImage(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	git(t, root, "init", "--quiet")
	git(t, root, "commit", "--quiet", "--allow-empty", "--message=first")
	r, err := newRelease(root, t.TempDir(), "v1.2.3", "")
	if err != nil {
		t.Fatal(err)
	}
	labels := func(version, revision string) string {
		return fmt.Sprintf(`{"config":{"Labels":{"org.opencontainers.image.revision":%q,"org.opencontainers.image.version":%q}}}`, revision, version)
	}
	good := imageArchive(t, labels("v1.2.3", r.commit))
	for what, test := range map[string]struct {
		name    string
		content []byte
		want    string // of the error; "" for none
	}{
		"its image":                   {"keygate_1.2.3_image_oci.tar", good, ""},
		"an image of another commit":  {"keygate_1.2.3_image_amd64.tar", imageArchive(t, labels("v1.2.3", "abc")), "has an image of the revision abc, and the release is of " + r.commit},
		"an image of another version": {"keygate_1.2.3_image_amd64.tar", imageArchive(t, labels("v1.2.2", r.commit)), "has an image of the version v1.2.2, and the release is of v1.2.3"},
		"an image without labels":     {"keygate_1.2.3_image_arm64.tar", imageArchive(t, "{}"), "has no image that says its version and commit"},
		"a damaged image":             {"keygate_1.2.3_image_arm64.tar", good[:maxImageConfig], "is damaged: make the image again"},
		"a name of another version":   {"keygate_1.2.2_image_oci.tar", good, "is not empty: remove it first"},
	} {
		out := t.TempDir()
		if err := os.WriteFile(filepath.Join(out, test.name), test.content, 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := newRelease(root, out, "v1.2.3", "")
		if test.want != "" {
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: got the error %v, want %q", what, err, test.want)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if err := r.sums(nil); err != nil {
			t.Fatal(err)
		}
		sums, err := os.ReadFile(filepath.Join(out, "SHA256SUMS"))
		if want := fmt.Sprintf("%x  %s\n", sha256.Sum256(good), test.name); err != nil || string(sums) != want {
			t.Errorf("%s: the checksums are %q (%v), want %q", what, sums, err, want)
		}
	}
}
