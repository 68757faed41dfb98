package config

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// TLSFiles names the files of a certificate and its key, or a directory of such files.
type TLSFiles struct {
	// Cert is the file with the certificate, or the directory.
	Cert string
	// Key is the file with the private key. It is "" if and only if Cert is a directory.
	Key string
}

// pairFiles sets c.TLS and c.AdminTLS. It returns an error if a certificate has no key, or a
// key no certificate.
func (c *Config) pairFiles() error {
	for _, one := range []struct {
		to                           *[]TLSFiles
		cert, key, certName, keyName string
	}{
		{&c.TLS, c.TLSCert, c.TLSKey, "tls-cert", "tls-key"},
		{&c.AdminTLS, c.AdminTLSCert, c.AdminTLSKey, "admin-tls-cert", "admin-tls-key"},
	} {
		certs, keys := splitPaths(one.cert), splitPaths(one.key)
		if one.cert != "" && len(certs) == 0 {
			return &Error{c.origins[one.certName], errors.New("names no file or directory")}
		}
		if len(certs) == 0 && one.key != "" {
			return &Error{c.origins[one.keyName], fmt.Errorf("also needs %s: set both the certificate and its private key", one.certName)}
		}
		files := 0
		for _, cert := range certs {
			pair := TLSFiles{Cert: cert}
			if info, err := os.Stat(cert); err != nil || !info.IsDir() {
				if files++; files <= len(keys) {
					pair.Key = keys[files-1]
				}
			}
			*one.to = append(*one.to, pair)
		}
		switch {
		case files > 0 && len(keys) == 0:
			return &Error{c.origins[one.certName], fmt.Errorf("also needs %s: set both the certificate and its private key", one.keyName)}
		case files != len(keys):
			return &Error{c.origins[one.keyName], fmt.Errorf("has %d keys for the %d certificates of %s that are files: give one for each, in the same order, and none for a directory", len(keys), files, one.certName)}
		}
	}
	return nil
}

// splitPaths returns the paths in s, which are separated by commas.
func splitPaths(s string) []string {
	var paths []string
	for path := range strings.SplitSeq(s, ",") {
		if path = strings.TrimSpace(path); path != "" {
			paths = append(paths, path)
		}
	}
	return paths
}
