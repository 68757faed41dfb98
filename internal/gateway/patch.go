package gateway

import (
	"bytes"
	"maps"
	"strings"

	"github.com/keygate/keygate/internal/document"
)

// read parses the section "gateway".
func (p *Patch) read(n *document.Node) error {
	rows := Settings()
	return n.EachMember("gateway", func(m *document.Node) error {
		s := findSetting(rows, m.Name)
		if s == nil {
			return m.Unknown("gateway."+m.Name, "is not a field of gateway in a configuration file: %s", "use "+strings.Join(SettingNames(), ", "))
		}
		return s.values.read(s, p, n, m)
	})
}

// IsEmpty reports whether the patch changes nothing.
func (p *Patch) IsEmpty() bool {
	var b bytes.Buffer
	p.encode(&b)
	return b.Len() == 0
}

func (p *Patch) encode(b *bytes.Buffer) {
	for _, s := range Settings() {
		s.values.encode(s.Name, b, p)
	}
}

// HasSecrets reports whether the patch has a secret in clear.
func (p *Patch) HasSecrets() bool {
	if k := p.UpstreamClientKey; k.Present && !k.Null && k.Value != Masked {
		return true
	}
	for _, value := range p.UpstreamHeaders.Value {
		if value != Masked {
			return true
		}
	}
	return false
}

// WithoutSecrets returns the patch with Masked in place of its secrets.
func (p *Patch) WithoutSecrets() Patch {
	masked := *p
	if k := &masked.UpstreamClientKey; k.Present && !k.Null {
		k.Value = Masked
	}
	if h := &masked.UpstreamHeaders; h.Value != nil {
		h.Value = maps.Clone(h.Value)
		for name := range h.Value {
			h.Value[name] = Masked
		}
	}
	return masked
}
