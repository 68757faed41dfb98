package gateway

import (
	"bytes"
	"maps"
	"slices"
	"strings"

	"github.com/keygate/keygate/internal/document"
)

// upstreamsField is the field of the section "gateway" with the upstreams, which is no setting.
const upstreamsField = "upstreams"

// read parses the section "gateway".
func (p *Patch) read(n *document.Node) error {
	rows := Settings()
	return n.EachMember("gateway", func(m *document.Node) (err error) {
		if m.Name == upstreamsField {
			p.Upstreams, err = readUpstreams(m, "gateway."+upstreamsField)
			return err
		}
		s := findSetting(rows, m.Name)
		if s == nil {
			return m.Unknown("gateway."+m.Name, "is not a field of gateway in a configuration file: %s", "use "+strings.Join(append(SettingNames(), upstreamsField), ", "))
		}
		return s.values.read(s, p, "gateway", n, m)
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
	encodeUpstreams(b, &p.Upstreams)
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
	for _, value := range p.Health.Value.Headers {
		if value != Masked {
			return true
		}
	}
	return slices.ContainsFunc(p.Upstreams.Value, func(u UpstreamPatch) bool { return u.HasSecrets() })
}

// WithoutSecrets returns the patch with Masked in place of its secrets.
func (p *Patch) WithoutSecrets() Patch {
	masked := *p
	if k := &masked.UpstreamClientKey; k.Present && !k.Null {
		k.Value = Masked
	}
	for _, headers := range []*map[string]string{&masked.UpstreamHeaders.Value, &masked.Health.Value.Headers} {
		*headers = maps.Clone(*headers)
		for name := range *headers {
			(*headers)[name] = Masked
		}
	}
	if u := &masked.Upstreams; u.Value != nil {
		u.Value = slices.Clone(u.Value)
		for i := range u.Value {
			u.Value[i].Patch = u.Value[i].WithoutSecrets()
		}
	}
	return masked
}
