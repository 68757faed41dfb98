package gateway

import (
	"bytes"
	"fmt"

	"github.com/keygate/keygate/internal/document"
)

// SelfServicePath is the beginning of the paths at which a gateway serves the holders of keys itself.
const SelfServicePath = "/.keygate/"

// SelfService says what holders of keys may do themselves, at paths below SelfServicePath (plans.md, section 9).
type SelfService struct {
	Usage  bool `json:"usage,omitempty"`  // see their usage
	Rotate bool `json:"rotate,omitempty"` // rotate their key
}

// Reserves reports whether the paths below SelfServicePath are the gateway's own.
func (s SelfService) Reserves() bool { return s.Usage || s.Rotate }

// SelfServicePatch changes a SelfService. A nil field keeps the setting.
type SelfServicePatch struct{ Usage, Rotate *bool }

// Patch returns the change to s.
func (s SelfService) Patch() SelfServicePatch { return SelfServicePatch{&s.Usage, &s.Rotate} }

// Apply returns s with the changes of p.
func (p SelfServicePatch) Apply(s SelfService) SelfService {
	if p.Usage != nil {
		s.Usage = *p.Usage
	}
	if p.Rotate != nil {
		s.Rotate = *p.Rotate
	}
	return s
}

func selfServiceValue() valueType[SelfServicePatch] {
	return valueType[SelfServicePatch]{readSelfService, encodeSelfService, schema{
		"type": "object", "additionalProperties": false,
		"properties": schema{
			"usage":  schema{"type": "boolean", "description": "Whether holders of keys may see their usage."},
			"rotate": schema{"type": "boolean", "description": "Whether holders of keys may rotate their key."},
		},
	}}
}

func readSelfService(n *document.Node, field string) (p SelfServicePatch, err error) {
	err = n.EachMember(field, func(m *document.Node) error {
		at := field + "." + m.Name
		var to **bool
		switch m.Name {
		case "usage":
			to = &p.Usage
		case "rotate":
			to = &p.Rotate
		default:
			return m.Unknown(at, "is not a field of self_service: use usage or rotate")
		}
		on, err := readBool(m, at)
		*to = &on
		return err
	})
	return p, err
}

func encodeSelfService(b *bytes.Buffer, p SelfServicePatch) {
	if p == (SelfServicePatch{}) {
		b.WriteString(" {}\n")
		return
	}
	b.WriteByte('\n')
	if p.Usage != nil {
		fmt.Fprintf(b, "    usage: %t\n", *p.Usage)
	}
	if p.Rotate != nil {
		fmt.Fprintf(b, "    rotate: %t\n", *p.Rotate)
	}
}
