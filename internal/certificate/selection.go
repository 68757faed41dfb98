package certificate

import (
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
)

// pair is a certificate with its key. It does not change.
type pair struct {
	files   Files
	source  int // index in Config.Files
	cert    *tls.Certificate
	keyMode fs.FileMode
	digest  [sha256.Size]byte // hash of the contents of both files
}

// selection is the pairs in use at one time. It does not change.
type selection struct {
	pairs  []*pair          // the first is the default one
	byName map[string]*pair // by DNS name in lower case, which may be *.example.com
}

// failure is a file that cannot be used.
type failure struct {
	file string
	err  error
}

// pick returns the certificate for the server name of a client, which may be "". A
// certificate of files for exactly this name comes first, then one of issued, and then a
// wildcard for its first label (RFC 9525, section 6.3). Without any of them the default one is
// used; nil if there is none.
func (n *selection) pick(serverName string, issued Issued) *tls.Certificate {
	if serverName == "" || issued == nil && len(n.pairs) == 1 {
		return n.fallback()
	}
	name := strings.ToLower(serverName)
	if p := n.byName[name]; p != nil {
		return p.cert
	}
	if issued != nil {
		if c := issued.Certificate(name); c != nil {
			return c
		}
	}
	if label, rest, ok := strings.Cut(name, "."); ok && label != "" {
		if p := n.byName["*."+rest]; p != nil {
			return p.cert
		}
	}
	return n.fallback()
}

// fallback returns the default certificate, or nil.
func (n *selection) fallback() *tls.Certificate {
	if len(n.pairs) == 0 {
		return nil
	}
	return n.pairs[0].cert
}

// byFile returns a new map of the pairs by the file of the certificate.
func (n *selection) byFile() map[string]*pair {
	out := make(map[string]*pair, len(n.pairs))
	for _, p := range n.pairs {
		out[p.files.Cert] = p
	}
	return out
}

// read returns the pairs of the files. A pair whose files cannot be used now stays as it was in
// previous; so do the pairs of a directory that cannot be read. If no pair would be left, it
// returns previous. If there are no failures, the result has at least one pair.
func (s *Set) read(previous *selection) (*selection, []failure) {
	var pairs []*pair
	var failures []failure
	old, seen := previous.byFile(), map[string]bool{}
	for source, files := range s.cfg.Files {
		found := []listed{{Files: files}}
		if files.Key == "" {
			var err error
			if found, err = s.list(files.Cert, old); err != nil {
				failures = append(failures, failure{files.Cert, err})
				for _, p := range previous.pairs {
					if p.source == source && !seen[p.files.Cert] {
						seen[p.files.Cert] = true
						pairs = append(pairs, p)
					}
				}
				continue
			}
		}
		for _, f := range found {
			if seen[f.Cert] {
				failures = append(failures, failure{f.Cert, fmt.Errorf("--%s: certificate %s is given twice: remove one of them", s.cfg.CertSetting, f.Cert)})
				continue
			}
			seen[f.Cert] = true
			p, err := s.load(f, source, old[f.Cert])
			if err != nil {
				failures = append(failures, failure{f.Cert, err})
				p = old[f.Cert]
			}
			if p != nil {
				pairs = append(pairs, p)
			}
		}
	}
	if len(pairs) > MaxCertificates {
		return previous, append(failures, failure{"", fmt.Errorf("--%s: %d certificates are too many: the maximum is %d", s.cfg.CertSetting, len(pairs), MaxCertificates)})
	}
	next, conflicts := s.index(pairs, old)
	failures = append(failures, conflicts...)
	if len(next.pairs) == 0 {
		return previous, failures
	}
	return next, failures
}

// index gives every name to its certificate. A name stays with the certificate that had it, if the
// new version of that certificate has it too. Another certificate with the name is then left out,
// or its previous version stays.
func (s *Set) index(pairs []*pair, old map[string]*pair) (*selection, []failure) {
	next := &selection{byName: map[string]*pair{}}
	for _, p := range pairs {
		if was := old[p.files.Cert]; was != nil {
			next.claim(p, was.names())
		}
	}
	var failures []failure
	for i, p := range pairs {
		if was := old[p.files.Cert]; was != p {
			if err := s.conflict(next, p, i == 0); err != nil {
				failures = append(failures, failure{p.files.Cert, err})
				next.release(p)
				p = was
			}
		}
		if p != nil {
			next.claim(p, p.names())
			next.pairs = append(next.pairs, p)
		}
	}
	return next, failures
}

// conflict returns an error if the new pair p cannot stand beside the pairs of n.
func (s *Set) conflict(n *selection, p *pair, isDefault bool) error {
	if len(p.cert.Leaf.DNSNames) == 0 && !isDefault {
		return fmt.Errorf("--%s: certificate %s has no DNS name, so that no client can ask for it: add a subject alternative name, or make it the first one", s.cfg.CertSetting, p.files.Cert)
	}
	for _, name := range p.names() {
		if other := n.byName[name]; other != nil && other != p {
			return fmt.Errorf("--%s: certificates %s and %s are both for the name %s: remove one of them", s.cfg.CertSetting, other.files.Cert, p.files.Cert, name)
		}
	}
	return nil
}

// names returns the DNS names of the certificate in lower case.
func (p *pair) names() []string {
	names := make([]string, len(p.cert.Leaf.DNSNames))
	for i, name := range p.cert.Leaf.DNSNames {
		names[i] = strings.ToLower(name)
	}
	return names
}

// claim gives p its names that no other pair holds.
func (n *selection) claim(p *pair, names []string) {
	own := p.names()
	for _, name := range names {
		if n.byName[name] == nil && slices.Contains(own, name) {
			n.byName[name] = p
		}
	}
}

// release takes all names from p.
func (n *selection) release(p *pair) {
	maps.DeleteFunc(n.byName, func(_ string, holder *pair) bool { return holder == p })
}
