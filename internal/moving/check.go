package moving

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// Bounds of a check (docs/limits.md).
const (
	// MaxLogLine is the maximum number of bytes of a line of an access log; longer ones are not read.
	MaxLogLine = 1 << 20
	// MaxFindings is how many different findings a check lists; requests beyond are counted.
	MaxFindings = 10_000
)

// OtherRoute is the Status of a finding about requests that would get to another route.
const OtherRoute = "route"

// Finding is what a check found about the requests with a method and path.
type Finding struct {
	Status   string `json:"status"` // 400, 404 or 405, or OtherRoute
	Method   string `json:"method"`
	Host     string `json:"host,omitempty"` // "" for hosts without a gateway
	Path     string `json:"path"`
	Requests int64  `json:"requests"`
	Was      string `json:"was,omitempty"` // the route, of OtherRoute
	Is       string `json:"is,omitempty"`
}

// Check compares an access log of another gateway with configuration files: what would be refused because of its path or method, or
// get to another route. It knows neither keys nor limits. The zero value is not valid.
type Check struct {
	// Requests counts the lines that were compared, and Unread those that are none of a known format.
	Requests, Unread int64
	// FirstUnread is the number of the first line that was not read; 0 if there is none.
	FirstUnread int64
	// Beyond counts the requests of findings beyond MaxFindings.
	Beyond int64

	hostname string // of requests whose lines have none
	byHost   map[string]*checked
	other    *checked // for hosts without a gateway; nil for none
	lines    int64
	found    map[Finding]int64
}

// checked is a gateway as a check sees it.
type checked struct {
	encoded bool // allow_encoded_slashes
	cors    bool
	routes  *gateway.Tree[[]checkedRoute]
}

// checkedRoute is a route with its origin; nil for none.
type checkedRoute struct {
	path    string
	methods []string
	origin  *Origin
}

// NewCheck returns a check against configuration files. Requests whose lines have no host are for hostname; if that is "", for the
// gateway without one, or the only one. origins may be nil.
func NewCheck(files []*gateway.Document, from []Origin, hostname string) (*Check, error) {
	c := &Check{hostname: strings.ToLower(hostname), byHost: map[string]*checked{}, found: map[Finding]int64{}}
	known := map[[2]string][]*Origin{}
	for i := range from {
		key := [2]string{from[i].Gateway, from[i].Path}
		known[key] = append(known[key], &from[i])
	}
	for _, d := range files {
		g := &d.Gateway
		one := &checked{encoded: g.AllowEncodedSlashes.Value, cors: g.CORS.Present}
		builder := gateway.NewTreeBuilder[[]checkedRoute]()
		for _, r := range d.Routes {
			template, err := gateway.ParseTemplate(r.Path)
			if err != nil {
				return nil, err
			}
			list := builder.Get(template)
			if list == nil {
				list = new([]checkedRoute)
				builder.Put(template, list)
			}
			route := checkedRoute{path: r.Path, methods: r.Methods}
			for _, o := range known[[2]string{g.Name.Value, r.Path}] {
				if slices.ContainsFunc(o.Methods, func(m string) bool { return slices.Contains(r.Methods, m) }) {
					route.origin = o
				}
			}
			*list = append(*list, route)
		}
		one.routes = builder.Tree()
		if host := strings.ToLower(g.Hostname.Value); host != "" {
			c.byHost[host] = one
		} else if c.other == nil {
			c.other = one
		}
	}
	if c.hostname != "" && c.byHost[c.hostname] == nil {
		return nil, fault.Invalid("hostname", "no gateway of the files has the hostname %s", short(hostname))
	}
	if c.hostname == "" && c.other == nil && len(c.byHost) == 1 {
		for host := range c.byHost {
			c.hostname = host
		}
	}
	return c, nil
}

// logged is a request of an access log.
type logged struct {
	method, host, target string
	status               int
	routeName, routeID   string
}

// Add compares the next line of a log.
func (c *Check) Add(line []byte) {
	c.lines++
	line = bytes.TrimSpace(line)
	if len(line) == 0 {
		return
	}
	r, ok := readLogged(line)
	if !ok {
		c.Skip()
		return
	}
	c.Requests++
	c.compare(&r)
}

// AddLong counts a line that is longer than MaxLogLine.
func (c *Check) AddLong() {
	c.lines++
	c.Skip()
}

// Skip counts the present line as one that could not be read.
func (c *Check) Skip() {
	if c.Unread++; c.FirstUnread == 0 {
		c.FirstUnread = c.lines
	}
}

// compare notes what would become of a request.
func (c *Check) compare(r *logged) {
	if r.status == 401 {
		return // no route takes it, whatever its path
	}
	host, path := hostOf(r, c.hostname), pathOfTarget(r)
	g := c.byHost[host]
	if g == nil {
		g, host = c.other, ""
	}
	f := Finding{Method: r.method, Host: host, Path: path}
	switch route, status := g.find(r.method, path); {
	case status == strconv.Itoa(r.status):
		return
	case status != "":
		f.Status = status
	case route == nil || !route.isOther(r):
		return
	default:
		f.Status, f.Was, f.Is = OtherRoute, cmp.Or(r.routeName, r.routeID), cmp.Or(route.origin.Name, route.origin.ID)
	}
	if _, known := c.found[f]; !known && len(c.found) == MaxFindings {
		c.Beyond++
		return
	}
	c.found[f]++
}

// find returns the route that takes a request, or the status of a refusal. Both are zero for a preflight that the gateway answers.
func (g *checked) find(method, path string) (route *checkedRoute, status string) {
	if g == nil {
		return nil, "404"
	}
	problem, normal, encoded := gateway.InspectRequestPath(path)
	if problem != "" || encoded && !g.encoded {
		return nil, "400"
	}
	if g.cors && method == "OPTIONS" {
		return nil, ""
	}
	if !normal {
		path = gateway.NormalizePath(nil, path)
	}
	list := g.routes.Find(path)
	if list == nil {
		return nil, "404"
	}
	for i := range *list {
		one := &(*list)[i]
		if slices.Contains(one.methods, method) {
			return one, ""
		}
		if method == "HEAD" && slices.Contains(one.methods, "GET") {
			route = one
		}
	}
	if route == nil {
		return nil, "405"
	}
	return route, ""
}

// isOther reports whether a request was one of another route than the one that this comes from.
func (s *checkedRoute) isOther(r *logged) bool {
	o := s.origin
	switch {
	case o == nil:
		return false
	case o.ID != "" && r.routeID != "":
		return o.ID != r.routeID
	}
	return o.Name != "" && r.routeName != "" && o.Name != r.routeName
}

// Findings returns what was found, the most requests first.
func (c *Check) Findings() []Finding {
	list := make([]Finding, 0, len(c.found))
	for f, n := range c.found {
		f.Requests = n
		list = append(list, f)
	}
	slices.SortFunc(list, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), cmp.Compare(a.Status, b.Status), cmp.Compare(a.Host, b.Host), cmp.Compare(a.Path, b.Path), cmp.Compare(a.Method, b.Method), cmp.Compare(a.Was, b.Was), cmp.Compare(a.Is, b.Is))
	})
	return list
}

// hostOf returns the host of a request, in lower case and without a port.
func hostOf(r *logged, otherwise string) string {
	host := r.host
	if rest, ok := cutScheme(r.target); ok {
		host, _, _ = strings.Cut(rest, "/")
	}
	if i := strings.LastIndexByte(host, ':'); i > strings.LastIndexByte(host, ']') {
		host = host[:i]
	}
	return cmp.Or(strings.ToLower(strings.TrimSuffix(host, ".")), otherwise)
}

// pathOfTarget returns the path of a request.
func pathOfTarget(r *logged) string {
	target := r.target
	if rest, ok := cutScheme(target); ok {
		if i := strings.IndexAny(rest, "/?#"); i >= 0 && rest[i] == '/' {
			target = rest[i:]
		} else {
			target = "/"
		}
	}
	if i := strings.IndexAny(target, "?#"); i >= 0 {
		target = target[:i]
	}
	return target
}

func cutScheme(target string) (rest string, ok bool) {
	for _, scheme := range []string{"http://", "https://"} {
		if rest, ok := strings.CutPrefix(target, scheme); ok {
			return rest, true
		}
	}
	return target, false
}

// readLogged reads a line of nginx (combined), of Kong's log plugins, or of Traefik (JSON).
func readLogged(line []byte) (r logged, ok bool) {
	if line[0] == '{' {
		return readJSONLine(line)
	}
	return readCombined(string(line))
}

// readCombined reads a line such as: 192.0.2.1 - - [30/Nov/2026:10:00:00 +0000] "GET /a HTTP/1.1" 200 12 "-" "curl".
func readCombined(line string) (r logged, ok bool) {
	_, rest, found := strings.Cut(line, `] "`)
	request, behind, closed := strings.Cut(rest, `"`)
	if !found || !closed {
		return r, false
	}
	method, rest, found := strings.Cut(request, " ")
	i := strings.LastIndexByte(rest, ' ')
	if !found || i < 0 || !strings.HasPrefix(rest[i+1:], "HTTP/") {
		return r, false
	}
	status, _, _ := strings.Cut(strings.TrimPrefix(behind, " "), " ")
	code, err := strconv.Atoi(status)
	return logged{method: method, target: unescapeLog(rest[:i]), status: code}, err == nil && isMethod(method)
}

// unescapeLog replaces the \xHH that nginx writes for a byte.
func unescapeLog(s string) string {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(s, `\x`)
		b.WriteString(before)
		if !found {
			return b.String()
		}
		s = rest
		if len(rest) >= 2 {
			if c, err := strconv.ParseUint(rest[:2], 16, 8); err == nil {
				b.WriteByte(byte(c))
				s = rest[2:]
				continue
			}
		}
		b.WriteString(`\x`)
	}
}

// jsonLine has the fields of Kong's and of Traefik's lines that are read. The rest of them may be secret.
type jsonLine struct {
	Request *struct {
		Method  string         `json:"method"`
		URI     string         `json:"uri"`
		URL     string         `json:"url"`
		Headers map[string]any `json:"headers"`
	} `json:"request"`
	Response struct {
		Status int `json:"status"`
	} `json:"response"`
	Route *struct {
		ID   string `json:"id"`
		Name string `json:"name"`
	} `json:"route"`

	RequestMethod, RequestHost, RequestPath string
	DownstreamStatus                        int
}

func readJSONLine(line []byte) (r logged, ok bool) {
	var l jsonLine
	if json.Unmarshal(line, &l) != nil {
		return r, false
	}
	if l.Request == nil {
		r = logged{method: l.RequestMethod, host: l.RequestHost, target: l.RequestPath, status: l.DownstreamStatus}
		return r, isMethod(r.method) && r.target != "" && r.status != 0
	}
	r = logged{method: l.Request.Method, target: l.Request.URI, status: l.Response.Status}
	switch host := l.Request.Headers["host"].(type) {
	case string:
		r.host = host
	case []any:
		if len(host) > 0 {
			r.host, _ = host[0].(string)
		}
	}
	if u, err := url.Parse(l.Request.URL); err == nil {
		r.host, r.target = cmp.Or(r.host, u.Host), cmp.Or(r.target, u.EscapedPath())
	}
	if l.Route != nil {
		r.routeID, r.routeName = l.Route.ID, l.Route.Name
	}
	return r, isMethod(r.method) && r.target != "" && r.status != 0
}

func isMethod(s string) bool { return gateway.CheckMethods([]string{s}) == nil }
