package certificate

import (
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	maxFile    = 1 << 20 // bytes
	maxEntries = 10_000  // of one directory
)

// listed is a pair of files to load.
type listed struct {
	Files
	err error // if the files cannot be a pair
}

// list returns the pairs in a directory and in the directories directly in it, in the order
// of their paths. old has the pairs in use by the file of the certificate. Names that begin
// with a dot are ignored, as Kubernetes uses them behind its links.
func (s *Set) list(dir string, old map[string]*pair) ([]listed, error) {
	entries, err := s.readDir(dir)
	if err != nil {
		return nil, err
	}
	found := s.pairsOf(dir, entries, old)
	for _, name := range entries {
		sub := filepath.Join(dir, name)
		if info, err := os.Stat(sub); err != nil || !info.IsDir() {
			continue
		}
		below, err := s.readDir(sub)
		if err != nil {
			return nil, err
		}
		found = append(found, s.pairsOf(sub, below, old)...)
		if len(found) > MaxCertificates {
			break
		}
	}
	switch {
	case len(found) == 0:
		return nil, fmt.Errorf("--%s: directory %s has no certificate with its key: in it, or in a directory in it, put NAME.crt (or NAME.pem) and NAME.key, or fullchain.pem and privkey.pem", s.cfg.CertSetting, dir)
	case len(found) > MaxCertificates:
		return nil, fmt.Errorf("--%s: directory %s has more than %d certificates", s.cfg.CertSetting, dir, MaxCertificates)
	}
	slices.SortFunc(found, func(a, b listed) int { return strings.Compare(a.Cert, b.Cert) })
	return found, nil
}

// readDir returns the names in a directory, in order, without those that begin with a dot.
func (s *Set) readDir(dir string) ([]string, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, openError(s.cfg.CertSetting, dir, "directory", err)
	}
	defer func() { _ = f.Close() }() // only read from
	names, err := f.Readdirnames(maxEntries + 1)
	switch {
	case err != nil && !errors.Is(err, io.EOF): // io.EOF: it is empty
		return nil, fmt.Errorf("--%s: read the directory %s: %w", s.cfg.CertSetting, dir, err)
	case len(names) > maxEntries:
		return nil, fmt.Errorf("--%s: directory %s has more than %d entries", s.cfg.CertSetting, dir, maxEntries)
	}
	names = slices.DeleteFunc(names, func(n string) bool { return strings.HasPrefix(n, ".") })
	slices.Sort(names)
	return names, nil
}

// pairsOf returns the pairs among the files of one directory: NAME.crt or NAME.pem with
// NAME.key, and fullchain.pem with privkey.pem. A certificate without a key is ignored, as
// chain.pem and ca.crt must be, unless it is in use.
func (s *Set) pairsOf(dir string, names []string, old map[string]*pair) []listed {
	has := make(map[string]bool, len(names))
	for _, n := range names {
		has[n] = true
	}
	var found []listed
	used := map[string]string{} // certificate by key
	for _, n := range names {
		stem, isCert := strings.CutSuffix(n, ".crt")
		if !isCert {
			stem, isCert = strings.CutSuffix(n, ".pem")
		}
		key := stem + ".key"
		if n == "fullchain.pem" && !has[key] {
			key = "privkey.pem"
		}
		files := Files{filepath.Join(dir, n), filepath.Join(dir, key)}
		if !isCert || n == "privkey.pem" || !has[key] && old[files.Cert] == nil {
			continue
		}
		one := listed{Files: files}
		if other := used[key]; other != "" {
			one.err = fmt.Errorf("--%s: %s and %s would both belong to the key %s: remove one of them", s.cfg.CertSetting, filepath.Join(dir, other), files.Cert, files.Key)
		}
		used[key] = n
		found = append(found, one)
	}
	for _, n := range names {
		if (strings.HasSuffix(n, ".key") || n == "privkey.pem") && used[n] == "" {
			key := filepath.Join(dir, n)
			found = append(found, listed{Files: Files{Cert: key}, err: fmt.Errorf("--%s: key %s has no certificate beside it: add %s, or remove the key", s.cfg.CertSetting, key, certName(n))})
		}
	}
	return found
}

// certName returns the name of the certificate that a key needs.
func certName(key string) string {
	if key == "privkey.pem" {
		return "fullchain.pem"
	}
	return strings.TrimSuffix(key, ".key") + ".crt"
}

// load reads a pair of Config.Files[source]. was is its previous version, which load returns if the
// contents are the same.
func (s *Set) load(f listed, source int, was *pair) (*pair, error) {
	if f.err != nil {
		return nil, f.err
	}
	keySetting := s.cfg.KeySetting
	if s.cfg.Files[source].Key == "" { // both are in a directory
		keySetting = s.cfg.CertSetting
	}
	cert, _, err := readFile(s.cfg.CertSetting, f.Cert)
	if err != nil {
		return nil, err
	}
	key, mode, err := readFile(keySetting, f.Key)
	if err != nil {
		return nil, err
	}
	p := &pair{files: f.Files, source: source, keyMode: mode.Perm()}
	h := sha256.New()
	for _, content := range [][]byte{cert, key} {
		one := sha256.Sum256(content)
		h.Write(one[:])
	}
	h.Sum(p.digest[:0])
	if was != nil && was.digest == p.digest && was.source == source {
		return was, nil
	}
	loaded, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("--%s %s and --%s %s do not match: %w", s.cfg.CertSetting, f.Cert, keySetting, f.Key, err)
	}
	p.cert = &loaded
	return p, nil
}

func readFile(setting, path string) ([]byte, fs.FileMode, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, 0, openError(setting, path, "file", err)
	}
	if !info.Mode().IsRegular() { // opening a named pipe would block
		return nil, 0, fmt.Errorf("--%s: %s is not a regular file", setting, path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, openError(setting, path, "file", err)
	}
	defer func() { _ = f.Close() }() // only read from
	content, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return nil, 0, fmt.Errorf("--%s: %w", setting, err)
	case len(content) > maxFile:
		return nil, 0, fmt.Errorf("--%s: %s is larger than 1 MiB, too large for a certificate or key", setting, path)
	}
	return content, info.Mode(), nil
}

// openError returns the error of opening a file or directory.
func openError(setting, path, what string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("--%s: %s %s does not exist", setting, what, path)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("--%s: Keygate's user is not permitted to read %s: change the owner or mode", setting, path)
	default:
		return fmt.Errorf("--%s: %w", setting, err)
	}
}
