package secret_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/secret"
)

// Guarantee: Open returns the bytes that were sealed, sealing the same bytes twice yields
// different results, and one flipped bit anywhere is detected.
func TestSealOpen(t *testing.T) {
	box := newBox(t, 1)
	rapid.Check(t, func(t *rapid.T) {
		plain := rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "plain")
		sealed, err := box.Seal(plain)
		if err != nil {
			t.Fatal(err)
		}
		again, err := box.Seal(plain)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(sealed, again) {
			t.Fatal("sealing twice yields the same bytes: the nonce is not random")
		}
		if len(plain) > 8 && bytes.Contains(sealed, plain) {
			t.Fatal("the sealed bytes contain the plain ones")
		}
		got, err := box.Open(sealed)
		if err != nil || !bytes.Equal(got, plain) {
			t.Fatalf("Open = %q, %v; want %q", got, err, plain)
		}
		bit := rapid.IntRange(0, len(sealed)*8-1).Draw(t, "bit")
		sealed[bit/8] ^= 1 << (bit % 8)
		if _, err := box.Open(sealed); !errors.Is(err, secret.ErrOpen) {
			t.Fatalf("Open of damaged bytes: %v; want ErrOpen", err)
		}
	})
}

// Guarantee: opening with another key, or opening too few bytes, returns ErrOpen.
func TestOpenWithAnotherKey(t *testing.T) {
	sealed, err := newBox(t, 1).Seal([]byte("token"))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range [][]byte{sealed, nil, sealed[:5]} {
		if _, err := newBox(t, 2).Open(b); !errors.Is(err, secret.ErrOpen) {
			t.Errorf("Open(%d bytes): %v; want ErrOpen", len(b), err)
		}
	}
}

// Guarantee: the file is created once, with mode 0600 and without leftovers, and all
// processes that start at the same time use the same key.
func TestLoadOrCreateCreatesOneKey(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "secret.key")
	boxes := make([]*secret.Box, 8)
	var wg sync.WaitGroup
	for i := range boxes {
		wg.Go(func() {
			b, err := secret.LoadOrCreate(path)
			if err != nil {
				t.Error(err)
			}
			boxes[i] = b
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	sealed, err := boxes[0].Seal([]byte("token"))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range boxes {
		if got, err := b.Open(sealed); err != nil || string(got) != "token" {
			t.Errorf("Open = %q, %v, want the sealed text", got, err)
		}
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 || info.Size() != secret.KeySize {
		t.Errorf("file has mode %v and %d bytes, want 0600 and %d", info.Mode(), info.Size(), secret.KeySize)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 1 {
		t.Errorf("directory contains %v, want only the key file", entries)
	}
}

// Guarantee: a given key takes the place of the file, and no file is written. If there is a file with
// another key, or a file that cannot be a safe key, it is refused.
func TestGivenKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret.key")
	key := bytes.Repeat([]byte{7}, secret.KeySize)
	box, err := secret.Given(key, path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after a given key the file has the error %v, want that it does not exist", err)
	}
	other := newBox(t, 8)
	if box.Fingerprint() == other.Fingerprint() || box.Fingerprint() != newBox(t, 7).Fingerprint() {
		t.Errorf("got the fingerprints %s and %s of two keys, want the same only for the same key", box.Fingerprint(), other.Fingerprint())
	}
	for content, want := range map[string]error{string(key): nil, strings.Repeat("x", secret.KeySize): secret.ErrOtherKey} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := secret.Given(key, path); !errors.Is(err, want) {
			t.Errorf("with a file of %q got the error %v, want %v", content[:1], err, want)
		}
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := secret.Given(key, path); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("with a file that others may read got the error %v, want one that names chmod 600", err)
	}
}

// Guarantee: a file that cannot be a safe key is refused with a message that names the
// remedy, and is left unchanged.
func TestLoadRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		content string
		mode    os.FileMode
		want    string
	}{
		"short":         {"abc", 0o600, "has 3 bytes"},
		"long":          {strings.Repeat("x", 33), 0o600, "has 33 bytes"},
		"empty":         {"", 0o600, "has 0 bytes"},
		"group reads":   {strings.Repeat("x", 32), 0o640, "chmod 600"},
		"others read":   {strings.Repeat("x", 32), 0o604, "chmod 600"},
		"wide and long": {strings.Repeat("x", 33), 0o666, "chmod 600"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "secret.key")
			if err := os.WriteFile(path, []byte(tc.content), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, tc.mode); err != nil {
				t.Fatal(err)
			}
			_, err := secret.LoadOrCreate(path)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v; want one that says %q", err, tc.want)
			}
			if got, err := os.ReadFile(path); err != nil || string(got) != tc.content {
				t.Errorf("file now contains %q, %v, want it unchanged", got, err)
			}
		})
	}
	if _, err := secret.LoadOrCreate(t.TempDir()); err == nil {
		t.Error("a directory was accepted as key file")
	}
	if _, err := secret.LoadOrCreate(filepath.Join(t.TempDir(), "none", "secret.key")); err == nil {
		t.Error("a file in a directory that does not exist was accepted")
	}
}

func newBox(t *testing.T, fill byte) *secret.Box {
	t.Helper()
	b, err := secret.New(bytes.Repeat([]byte{fill}, secret.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	return b
}
