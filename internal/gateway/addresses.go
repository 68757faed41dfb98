package gateway

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/keygate/keygate/internal/addrlist"
	"github.com/keygate/keygate/internal/document"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/label"
)

// networkExample is a network in examples and placeholders.
const networkExample = "203.0.113.0/24"

// Addresses returns the addresses that may use the gateway.
func (r *Requests) Addresses() addrlist.Lists {
	return addrlist.Lists{Allow: r.AllowIPs, Deny: r.DenyIPs}
}

// Restricts reports whether requests may be refused by their address, by maintenance or because of the document, or headers are set or
// removed, on which services may rely.
func (r *Requests) Restricts() bool {
	return !r.Addresses().IsZero() || r.Maintenance != nil || r.RequestHeaders != nil || r.ResponseHeaders != nil || r.Validate != ""
}

// allowIPsRow and denyIPsRow are the rows of the lists of addresses (edge.md, section 2).
func allowIPsRow() Setting {
	return Setting{
		Name: addrlist.AllowField, Kind: KindList, MayBeEmpty: true, Most: addrlist.Max, Example: networkExample,
		Doc: Doc{
			File:   "Networks whose addresses may use the gateway, in CIDR notation, at most 256; all others may not. The longest prefix in allow_ips and deny_ips decides, and deny_ips among equal ones. null or [], the default, means all addresses.",
			Create: "Networks whose addresses may use the gateway, in CIDR notation; all others may not.",
			Update: "Networks whose addresses may use the gateway, in CIDR notation; all others may not. The longest prefix in allow_ips and deny_ips that contains the client's address decides, and deny_ips among equal ones. Replaces the whole list; null or [], the default, means all addresses.",
			Record: "Networks whose addresses may use the gateway. Absent if there are none, and all addresses may.",
			Patch:  "networks, at most 256; replaced as a whole; default: all addresses",
		},
		Record: Record{OmitEmpty: true},
		Flag:   Flag{Name: "allow-ip", Usage: "`network` whose addresses may use the gateway, such as 203.0.113.0/24, while all others may not; may be repeated, and replaces all of them; an empty value removes them", Column: "ALLOWED ADDRESSES"},
		Form:   Form{Group: "Client addresses", Label: "Allowed", Hint: "Networks such as 203.0.113.0/24, separated by commas. All other addresses are then refused. Empty allows all.", Placeholder: networkExample},
		values: access[[]string]{
			file:   networksValue(),
			member: func(p *Patch) *Member[[]string] { return &p.AllowIPs },
			get:    func(g *Gateway) []string { return g.Requests.AllowIPs },
			set:    func(g *Gateway, v []string) { g.Requests.AllowIPs = addrlist.Normal(v) },
			check:  func(v []string) error { return fault.Prefixed(addrlist.AllowField, addrlist.Check(v)) },
		},
	}
}

func denyIPsRow() Setting {
	return Setting{
		Name: addrlist.DenyField, Kind: KindList, MayBeEmpty: true, Most: addrlist.Max, Example: "198.51.100.0/24",
		Doc: Doc{
			File:   "Networks whose addresses may not use the gateway, in CIDR notation, at most 256. The longest prefix in allow_ips and deny_ips decides, and deny_ips among equal ones. null or [], the default, means none.",
			Create: "Networks whose addresses may not use the gateway, in CIDR notation.",
			Update: "Networks whose addresses may not use the gateway, in CIDR notation. The longest prefix in allow_ips and deny_ips that contains the client's address decides, and deny_ips among equal ones. Replaces the whole list; null or [], the default, means none.",
			Record: "Networks whose addresses may not use the gateway. Absent if there are none.",
			Patch:  "networks, at most 256; replaced as a whole; default: none",
		},
		Record: Record{OmitEmpty: true},
		Flag:   Flag{Name: "deny-ip", Usage: "`network` whose addresses may not use the gateway; may be repeated, and replaces all of them; an empty value removes them", Column: "DENIED ADDRESSES"},
		Form:   Form{Group: "Client addresses", Label: "Denied", Hint: "Networks, separated by commas. The longest prefix decides, and denies if both lists have it.", Placeholder: "198.51.100.0/24"},
		values: access[[]string]{
			file:   networksValue(),
			member: func(p *Patch) *Member[[]string] { return &p.DenyIPs },
			get:    func(g *Gateway) []string { return g.Requests.DenyIPs },
			set:    func(g *Gateway, v []string) { g.Requests.DenyIPs = addrlist.Normal(v) },
			check:  func(v []string) error { return fault.Prefixed(addrlist.DenyField, addrlist.Check(v)) },
		},
	}
}

// Addresses returns the addresses that may use a route.
func (h *Handling) Addresses() addrlist.Lists {
	return addrlist.Lists{Allow: h.AllowIPs, Deny: h.DenyIPs}
}

// allowIPsField and denyIPsField are the lists of addresses of a route.
func allowIPsField() handlingField {
	f := networksField(addrlist.AllowField, func(h *Handling) *[]string { return &h.AllowIPs })
	f.doc = "Networks whose addresses may use the route, in CIDR notation; all others may not. The longest prefix in allow_ips and deny_ips decides, and deny_ips among equal ones. The lists of the gateway and of the key must allow the address too."
	return f
}

func denyIPsField() handlingField {
	f := networksField(addrlist.DenyField, func(h *Handling) *[]string { return &h.DenyIPs })
	f.doc = "Networks whose addresses may not use the route, in CIDR notation."
	return f
}

func networksField(name string, of func(h *Handling) *[]string) handlingField {
	return handlingField{
		name:       name,
		mayBeEmpty: true,
		present:    func(h *Handling) bool { return len(*of(h)) > 0 },
		value:      func(h *Handling) any { return *of(h) },
		copyTo:     func(to, from *Handling) { *of(to) = addrlist.Normal(*of(from)) },
		check:      func(h *Handling, _ string) error { return fault.Prefixed(name, addrlist.Check(*of(h))) },
		part: func(h *Handling) part {
			return part{name, func(m *document.Node, at string) error {
				list, err := m.ReadTexts(at)
				*of(h) = addrlist.Normal(list)
				return err
			}, networksSchema()}
		},
	}
}

// networksValue is a list of networks.
func networksValue() valueType[[]string] {
	return valueType[[]string]{(*document.Node).ReadTexts, scalar(document.Flow), networksSchema()}
}

func networksSchema() schema {
	return schema{
		"type": "array", "maxItems": addrlist.Max, "items": schema{"type": "string", "minLength": 1},
		"examples": []any{[]any{networkExample}},
	}
}

// Maintenance is what a gateway responds with that is under maintenance, and who may use it nevertheless (edge.md,
// section 2).
type Maintenance struct {
	// Message is the message of the 503; "" means DefaultMaintenance.
	Message string `json:"message,omitempty"`
	// Allow are the networks whose addresses are served as ever.
	Allow []string `json:"allow,omitempty"`
}

// DefaultMaintenance is the message of a gateway under maintenance that gives none.
const DefaultMaintenance = "the service is under maintenance: try again later"

// MaxMaintenanceMessage is the maximum number of characters of a message.
const MaxMaintenanceMessage = 500

// maintenanceField is the name of the setting.
const maintenanceField = "maintenance"

// Check checks the message and the networks. The error is a validation error of their fields below maintenance.
func (m *Maintenance) Check() error {
	var badMessage error
	switch {
	case m == nil:
		return nil
	case utf8.RuneCountInString(m.Message) > MaxMaintenanceMessage || !utf8.ValidString(m.Message):
		badMessage = fault.Invalid("message", "must have at most %d characters", MaxMaintenanceMessage)
	case strings.Contains(m.Message, document.EnvMark):
		badMessage = fault.Invalid("message", "%s", envForbidden)
	default:
		badMessage = label.CheckText("message", m.Message)
	}
	return fault.Join(badMessage, fault.Prefixed("allow", addrlist.Check(m.Allow)))
}

// Normal returns m with the networks in normal form; nil for nil.
func (m *Maintenance) Normal() *Maintenance {
	if m == nil {
		return nil
	}
	return &Maintenance{Message: m.Message, Allow: addrlist.Normal(m.Allow)}
}

// Equal reports whether both say the same.
func (m *Maintenance) Equal(o *Maintenance) bool {
	if m == nil || o == nil {
		return m == o
	}
	return m.Message == o.Message && slices.Equal(m.Allow, o.Allow)
}

// maintenanceRow is the row of the setting "maintenance". Null turns it off.
func maintenanceRow() Setting {
	return Setting{
		Name: maintenanceField, Kind: KindMaintenance,
		Doc: Doc{
			File:   "Turns maintenance on: every request gets a 503 with the message, whatever its key, except those from the addresses in allow. {} has the default message. null, the default, turns it off.",
			Create: "Turns maintenance on: every request gets a 503 with the message, whatever its key, except those from the addresses in allow.",
			Update: "Turns maintenance on: every request gets a 503 with the message, whatever its key, and is charged nothing, except those from the addresses in allow. It is in force on every node when the call returns. Replaces the whole object; null, the default, turns it off.",
			Record: "That the gateway is under maintenance: what it responds with, and who may use it nevertheless. Absent if it is not.",
			Patch:  "replaced as a whole; cleared: off, the default",
		},
		Record: Record{OmitEmpty: true},
		Flag:   Flag{Name: "maintenance", Usage: "respond to every request with a 503; false ends that", Column: "MAINTENANCE"},
		Form:   Form{Group: "Maintenance", Label: "Under maintenance", Hint: "Every request gets a 503, whatever its key, on every node as soon as this is saved."},
		Parts: []Part{{
			Name: "message", Kind: KindText,
			Flag: Flag{Name: "maintenance-message", Usage: "`text` of the message of that 503"},
			Form: Form{Label: "Message", Hint: "Callers get it, in at most 500 characters.", Placeholder: DefaultMaintenance},
		}, {
			Name: "allow", Kind: KindList,
			Flag: Flag{Name: "maintenance-allow", Usage: "`network` whose addresses are served nevertheless; may be repeated"},
			Form: Form{Label: "Served nevertheless", Hint: "Networks, separated by commas, such as that of your office.", Placeholder: networkExample},
		}},
		values: access[*Maintenance]{
			file:   maintenanceValue(),
			member: func(p *Patch) *Member[*Maintenance] { return &p.Maintenance },
			get:    func(g *Gateway) *Maintenance { return g.Requests.Maintenance },
			set:    func(g *Gateway, m *Maintenance) { g.Requests.Maintenance = m.Normal() },
			check:  func(m *Maintenance) error { return fault.Prefixed(maintenanceField, m.Check()) },
		},
	}
}

func maintenanceValue() valueType[*Maintenance] {
	message := textValue(0, MaxMaintenanceMessage).withDoc("Message of the 503. Default: " + DefaultMaintenance + ".")
	allow := networksValue().withDoc("Networks whose addresses are served nevertheless, in CIDR notation, at most 256.")
	return valueType[*Maintenance]{readMaintenance, encodeMaintenance, schema{
		"type": "object", "additionalProperties": false, "properties": schema{"message": orNull(message), "allow": orNull(allow)},
	}}
}

func readMaintenance(n *document.Node, field string) (*Maintenance, error) {
	m := &Maintenance{}
	err := n.EachMember(field, func(member *document.Node) (err error) {
		at := field + "." + member.Name
		switch {
		case member.Name != "message" && member.Name != "allow":
			return member.Unknown(at, "is not a field of maintenance: use message or allow")
		case member.Kind == document.Null:
		case member.Name == "message":
			m.Message, err = member.ReadText(at)
		default:
			m.Allow, err = member.ReadTexts(at)
		}
		return err
	})
	return m, err
}

func encodeMaintenance(b *bytes.Buffer, m *Maintenance) {
	if m == nil || m.Equal(&Maintenance{}) {
		b.WriteString(" {}\n")
		return
	}
	b.WriteByte('\n')
	if m.Message != "" {
		fmt.Fprintf(b, "    message: %s\n", document.Scalar(m.Message))
	}
	if len(m.Allow) > 0 {
		fmt.Fprintf(b, "    allow: %s\n", document.Flow(m.Allow))
	}
}
