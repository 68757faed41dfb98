package plan

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/keygate/keygate/internal/document"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// File is a file of plans: all that an account has, or some of them. It names the gateways of limits, since their
// identifiers differ between installations.
type File struct{ Plans []FilePlan }

// FilePlan is a plan of a file. What the file leaves out has its default.
type FilePlan struct {
	Plan              // the limits have no GatewayID
	Gateways []string // the names of the gateways of the limits; "" for all gateways
	Position document.Position
}

// IsFile reports whether a configuration file is a file of plans. A file that cannot be parsed is not.
func IsFile(content []byte) bool {
	root, err := document.Parse(content)
	return err == nil && root.Member("plans") != nil && root.Member("routes") == nil
}

// ParseFile parses a file of plans in YAML or JSON. The error is a validation error that lists everything that is wrong,
// in the order of the file, as that of gateway.ParseDocument.
func ParseFile(content []byte) (*File, error) {
	f := &File{}
	_, err := gateway.ReadFile(content, f.read)
	return f, err
}

// ParsePlan parses a file that has one plan, which may have no name. Its fields and its errors are as in a file of plans.
func ParsePlan(content []byte) (*FilePlan, error) {
	p := &FilePlan{}
	_, err := gateway.ReadFile(content, func(root *document.Node) (err error) {
		*p, err = readPlan(root, "")
		return err
	})
	return p, err
}

// AddMistakes returns err, which gateway.ResolveEnv returned for a file, with everything else that is wrong with it.
func AddMistakes(content []byte, err error) error {
	return gateway.AddMistakesOf(content, err, (&File{}).read)
}

func (f *File) read(root *document.Node) error {
	return root.EachMember("", func(m *document.Node) error {
		switch m.Name {
		case "plans":
			return f.readPlans(m)
		case "$schema": // for editors
			_, err := m.ReadText(m.Name)
			return err
		}
		return m.Unknown(m.Name, "is not a field of a file of plans: it has plans alone, and a gateway has a file of its own")
	})
}

func (f *File) readPlans(n *document.Node) error {
	switch {
	case n.Kind != document.Sequence:
		return n.Mismatch("plans", document.Sequence, "")
	case len(n.Nodes) > MaxPlans:
		return n.Invalid("plans", "must have at most %d plans", MaxPlans)
	}
	var problems document.Problems
	named := map[string]int{}
	for i := range n.Nodes {
		at := fmt.Sprintf("plans[%d]", i)
		p, err := readPlan(&n.Nodes[i], at, "name")
		if first, taken := named[p.Name]; taken && p.Name != "" {
			err = fault.Join(err, document.WithPosition(fault.Invalid("name", "must be unique: plans[%d] has it, too", first), &n.Nodes[i], at))
		} else {
			named[p.Name] = i
		}
		f.Plans = append(f.Plans, p)
		if problems.Add(err); problems.Full() {
			break
		}
	}
	return problems.Err()
}

// readPlan reads a plan. required are the fields that it must have besides limits.
func readPlan(n *document.Node, at string, required ...string) (FilePlan, error) {
	if n.Kind != document.Mapping {
		return FilePlan{}, n.Mismatch(at, document.Mapping, "")
	}
	p := FilePlan{Plan: Plan{TimeZone: DefaultZone, AnchorDay: DefaultAnchor}, Position: n.Position}
	ofLimits := map[string]bool{}
	unread, err := document.Fields{
		"name": document.TextOf(&p.Name), "title": document.TextOf(&p.Title), "time_zone": document.TextOf(&p.TimeZone),
		"anchor_day": func(m *document.Node, at string) error {
			day, err := m.ReadCount(at)
			p.AnchorDay = int(min(max(day, 0), 32))
			return err
		},
		"limits": func(m *document.Node, at string) error { return p.readLimits(m, at, ofLimits) },
	}.Read(n, at, "is not a field of a plan: use name, title, limits, time_zone or anchor_day", append(required, "limits")...)
	unread["name"] = unread["name"] || n.Member("name") == nil
	maps.Copy(unread, ofLimits)
	bad := p.Validate()
	for i := range p.Limits {
		p.Limits[i].GatewayID = ""
	}
	return p, fault.Join(err, document.Wrong(bad, n, at, unread, "title"))
}

// readLimits reads the limits of a plan, with a GatewayID that only Validate sees. It adds the fields that it did not read
// to unread.
func (p *FilePlan) readLimits(n *document.Node, at string, unread map[string]bool) error {
	switch {
	case n.Kind != document.Sequence:
		return n.Mismatch(at, document.Sequence, "")
	case len(n.Nodes) > MaxLimits:
		return n.Invalid(at, "must have at most %d limits", MaxLimits)
	}
	var problems document.Problems
	for i := range n.Nodes {
		l, of, unreadOfLimit, err := readLimit(&n.Nodes[i], fmt.Sprintf("%s[%d]", at, i))
		problems.Add(err)
		for field := range unreadOfLimit {
			unread[fmt.Sprintf("limits[%d].%s", i, field)] = unreadOfLimit[field]
		}
		p.Limits, p.Gateways = append(p.Limits, l), append(p.Gateways, of)
	}
	return problems.Err()
}

// readLimit returns a limit, the name of its gateway, and the fields that it did not read.
func readLimit(n *document.Node, at string) (l Limit, of string, unread map[string]bool, err error) {
	if n.Kind != document.Mapping {
		return l, "", map[string]bool{"name": true, "per": true}, n.Mismatch(at, document.Mapping, "")
	}
	var in LimitInput
	unread, err = document.Fields{
		"name": document.TextOf(&in.Name), "sustained": document.TextOf(&in.Sustained), "burst": document.TextOf(&in.Burst), "quota": document.TextOf(&in.Quota), "meter": document.TextOf(&in.Meter),
		"overage": document.TextOf(&in.Overage), "per": document.TextOf(&in.Per), "gateway": document.TextOf(&of),
		"concurrency": func(m *document.Node, at string) error {
			n, err := m.ReadCount(at)
			in.Concurrency = &n
			return err
		},
		"warn_at": func(m *document.Node, at string) (err error) {
			in.WarnAt, err = readPercentages(m, at)
			return err
		},
		"routes": func(m *document.Node, at string) (err error) {
			in.Routes, err = m.ReadTexts(at)
			return err
		},
	}.Read(n, at, "is not a field of a limit: use name, sustained, burst, quota, concurrency, meter, overage, warn_at, per, gateway or routes", "name")
	if len(in.Routes) > 0 && of == "" && !unread["gateway"] {
		err = fault.Join(err, n.Member("routes").Invalid(at+".routes", "need gateway: give the name of the gateway that has these routes"))
	}
	// One that is only like it in name is reported as unknown.
	in.Assume(func(field string) bool { return unread[field] || n.HasLike(field) })
	l, bad := in.parse()
	l.GatewayID = cmp.Or(of, "a gateway")
	return l, of, unread, fault.Join(err, document.Wrong(bad, n, at, unread))
}

// Assume gives in a rate, a quota or a number of requests in flight that was meant to be there but could not be read, so that
// nothing else is said of it. meant reports whether that is so for the field.
func (in *LimitInput) Assume(meant func(field string) bool) {
	if meant("sustained") {
		in.Sustained = cmp.Or(in.Sustained, "1/s")
	}
	if meant("quota") {
		in.Quota = cmp.Or(in.Quota, "1/day")
	}
	if meant("concurrency") {
		in.Concurrency = new(int64(1))
	}
}

// readPercentages returns a list that is not nil, or nil if it cannot be read. A number that is too large for a percentage
// stays too large.
func readPercentages(n *document.Node, at string) ([]int, error) {
	if n.Kind != document.Sequence {
		return nil, n.Mismatch(at, document.Sequence, "")
	}
	var problems document.Problems
	list := make([]int, len(n.Nodes))
	for i := range n.Nodes {
		percent, err := n.Nodes[i].ReadCount(fmt.Sprintf("%s[%d]", at, i))
		list[i] = int(min(max(percent, 0), MaxPercent+1))
		if problems.Add(err); problems.Full() {
			break
		}
	}
	if err := problems.Err(); err != nil {
		return nil, err
	}
	return list, nil
}

// Encode returns the file as YAML, with plans and limits in their order. ParseFile turns it into an equal file.
func (f *File) Encode() []byte {
	var b bytes.Buffer
	if len(f.Plans) == 0 {
		return []byte("plans: []\n")
	}
	b.WriteString("plans:\n")
	for i := range f.Plans {
		f.Plans[i].encode(&b)
	}
	return b.Bytes()
}

func (p *FilePlan) encode(b *bytes.Buffer) {
	fmt.Fprintf(b, "  - name: %s\n", document.Scalar(p.Name))
	if p.Title != "" {
		fmt.Fprintf(b, "    title: %s\n", document.Scalar(p.Title))
	}
	if p.TimeZone != DefaultZone {
		fmt.Fprintf(b, "    time_zone: %s\n", document.Scalar(p.TimeZone))
	}
	if p.AnchorDay != DefaultAnchor {
		fmt.Fprintf(b, "    anchor_day: %d\n", p.AnchorDay)
	}
	if len(p.Limits) == 0 {
		b.WriteString("    limits: []\n")
		return
	}
	b.WriteString("    limits:\n")
	for i := range p.Limits {
		p.Limits[i].encode(b, p.Gateways[i])
	}
}

// countOf returns a count as text; "" for none.
func countOf(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

func (l *Limit) encode(b *bytes.Buffer, of string) {
	fmt.Fprintf(b, "      - name: %s\n", document.Scalar(l.Name))
	for _, part := range []struct{ field, value string }{
		{"sustained", l.Sustained.String()}, {"burst", l.Burst.String()}, {"quota", l.Quota.String()}, {"concurrency", countOf(l.Concurrency)}, {"meter", l.Meter}, {"overage", string(l.Overage)},
	} {
		value := part.value
		if part.field == "meter" && value != "" { // such as 1 or null
			value = document.Scalar(value)
		}
		if value != "" {
			fmt.Fprintf(b, "        %s: %s\n", part.field, value)
		}
	}
	if l.WarnAt != nil {
		fmt.Fprintf(b, "        warn_at: %s\n", strings.ReplaceAll(fmt.Sprint(l.WarnAt), " ", ", "))
	}
	if l.Per != PerKey {
		fmt.Fprintf(b, "        per: %s\n", l.Per)
	}
	if of != "" {
		fmt.Fprintf(b, "        gateway: %s\n", document.Scalar(of))
	}
	if len(l.Routes) > 0 {
		fmt.Fprintf(b, "        routes: %s\n", document.Flow(l.Routes))
	}
}
