package moving

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/keygate/keygate/internal/document"
	"github.com/keygate/keygate/internal/gateway"
)

// address is where the requests of a service go.
type address struct {
	scheme, host, port, path string
	upstream                 *upstream // nil if host is a name or address
}

// locate returns the address of a service, or why it has none.
func (k *kong) locate(s *service) (a address, l reason) {
	protocol, host, path, port := s.protocol, s.host, s.path, ""
	if s.url != "" {
		scheme, rest, _ := strings.Cut(s.url, "://")
		if protocol = scheme; rest == "" {
			return a, reason{"its url " + short(s.url) + " is not a URL", "write it as http://host:port/path"}
		}
		authority, below, slash := strings.Cut(rest, "/")
		if slash {
			path = "/" + below
		}
		host = authority
		if u, err := url.Parse("//" + authority); err == nil && !isReference(authority) {
			host, port = u.Hostname(), u.Port()
		}
	} else if s.port > 0 {
		port = strconv.FormatInt(s.port, 10)
	}
	schemes := map[string]string{"http": "http", "https": "https", "ws": "http", "wss": "https", "grpc": "h2c", "grpcs": "https"}
	a.scheme = schemes[strings.ToLower(protocol)]
	switch {
	case a.scheme == "":
		return a, reason{"Keygate forwards HTTP and gRPC, and no " + short(protocol), "connect to the service without a gateway"}
	case host == "":
		return a, reason{"it has no host", "give it a host"}
	case s.url == "" && s.port == -2:
		return a, reason{"its port is not in the file", "write the port"}
	case strings.Contains(path, "?") || strings.Contains(path, "#"):
		return a, reason{"its path " + short(path) + " has a query", "let callers send it"}
	}
	if s.url == "" && s.port == -1 {
		port = "80" // Kong's own default, whatever the protocol
	}
	if s.url != "" && port == "" && (protocol == "grpc" || protocol == "ws") {
		port = "80"
	}
	a.host, a.port, a.path = host, port, strings.TrimRight(path, "/")
	for _, u := range k.upstreams {
		if u.is(host) {
			a.upstream = u
		}
	}
	if a.upstream != nil {
		for _, t := range a.upstream.targets {
			if url := a.targetURL(t, a.path); !isReference(url) {
				if _, err := gateway.ParseUpstreamURL(url); err != nil {
					return a, reason{"the target " + short(t.address) + " of its upstream is not one that Keygate takes", "write it as host:port"}
				}
			}
		}
	} else {
		if _, err := gateway.ParseUpstreamURL(a.url(host, port, a.path)); err != nil && !isReference(host+a.path) {
			return a, reason{"its URL " + short(a.url(host, port, a.path)) + " is not one that Keygate takes", "write it as http://host:port/path"}
		}
	}
	return a, reason{}
}

// url returns the URL of a target.
func (a *address) url(host, port, path string) string {
	if strings.Contains(host, ":") && !strings.HasPrefix(host, "[") && !strings.Contains(host, document.EnvMark) {
		host = "[" + host + "]"
	}
	if port != "" && port != (map[string]string{"http": "80", "h2c": "80", "https": "443"})[a.scheme] {
		host += ":" + port
	}
	return a.scheme + "://" + host + path
}

// variant is an upstream of a gateway: a service with what its routes want of it.
type variant struct {
	service  *service
	base     string
	preserve bool
	headers  map[string]string
}

// id returns the same text for equal variants.
func (v *variant) id() string {
	names := slices.Sorted(maps.Keys(v.headers))
	var b strings.Builder
	fmt.Fprintf(&b, "%p %q %t", v.service, v.base, v.preserve)
	for _, n := range names {
		fmt.Fprintf(&b, " %q %q", n, v.headers[n])
	}
	return b.String()
}

// patch returns the upstream with a name. It is reported once for each service.
func (k *kong) patch(name string, v *variant) gateway.UpstreamPatch {
	a := k.addresses[v.service]
	u := gateway.UpstreamPatch{Name: name}
	set := func(m *gateway.Member[string], text string) {
		if text != "" {
			*m = gateway.Member[string]{Present: true, Value: text}
		}
	}
	targets := []gateway.Target{{URL: a.url(a.host, a.port, v.base)}}
	if a.upstream != nil {
		targets = k.targets(a, v.base)
		k.balance(a.upstream, &u)
	}
	u.Targets = gateway.Member[[]gateway.Target]{Present: true, Value: targets}
	switch {
	case v.preserve:
		set(&u.UpstreamHost, "preserve")
	case a.upstream != nil && a.upstream.hostHeader != "" && !isReference(a.upstream.hostHeader):
		set(&u.UpstreamHost, a.upstream.hostHeader)
	}
	set(&u.Timeout, milliseconds(v.service.read, time.Second, time.Hour))
	set(&u.UpstreamConnectTimeout, milliseconds(v.service.connect, 100*time.Millisecond, time.Minute))
	if n := v.service.retries; n >= 0 && n != defaultRetries {
		r := gateway.DefaultRetries()
		r.Attempts = int(min(n, gateway.MaxRetryAttempts))
		u.Retries = gateway.Member[gateway.Retries]{Present: true, Value: r}
	}
	if len(v.headers) > 0 {
		u.UpstreamHeaders = gateway.Member[map[string]string]{Present: true, Value: v.headers}
	}
	return u
}

// Kong's defaults, for which an upstream has Keygate's.
const (
	defaultTimeout = 60_000 // milliseconds
	defaultRetries = 5
)

// milliseconds returns a timeout as a duration from least to most; "" for Kong's default.
func milliseconds(ms int64, least, most time.Duration) string {
	if ms == defaultTimeout || ms <= 0 {
		return ""
	}
	d := min(max(time.Duration(min(ms, 1<<32))*time.Millisecond, least), most)
	if d%time.Second == 0 {
		return strconv.FormatInt(int64(d/time.Second), 10) + "s"
	}
	return strconv.FormatInt(d.Milliseconds(), 10) + "ms"
}

// targets returns the targets of an upstream.
func (k *kong) targets(a address, base string) (list []gateway.Target) {
	most := int64(1)
	for _, t := range a.upstream.targets {
		most = max(most, t.weight)
	}
	for _, t := range a.upstream.targets {
		if len(list) == gateway.MaxTargets {
			k.left(t.at, "target "+short(t.address), fmt.Sprintf("an upstream has at most %d targets", gateway.MaxTargets), "let a name resolve to them")
			continue
		}
		g := gateway.Target{URL: a.targetURL(t, base), Drain: t.weight <= 0}
		if t.weight > 0 {
			g.Weight = int(t.weight)
			if most > gateway.MaxTargetWeight {
				g.Weight = int(max(1, t.weight*gateway.MaxTargetWeight/most))
				k.changed(t.at, "target "+short(t.address), "its weight becomes %d, since a weight is at most %d", g.Weight, gateway.MaxTargetWeight)
			}
		} else {
			k.changed(t.at, "target "+short(t.address), "its weight was 0: it is drained")
		}
		if slices.ContainsFunc(list, func(o gateway.Target) bool { return o.URL == g.URL }) {
			k.left(t.at, "target "+short(t.address), "the upstream has it already", "nothing to do")
			continue
		}
		list = append(list, g)
	}
	return list
}

// balance sets how an upstream chooses and checks its targets.
func (k *kong) balance(of *upstream, u *gateway.UpstreamPatch) {
	object := "upstream " + short(of.name)
	policy, on := "", ""
	switch of.algorithm {
	case "", "round-robin":
		policy = string(gateway.RoundRobin)
	case "least-connections":
	case "consistent-hashing":
		policy = string(gateway.Hash)
		switch of.hashOn {
		case "consumer":
			on = gateway.HashPrincipal
		case "ip":
			on = gateway.HashAddress
		case "header":
			on = gateway.HashHeader + of.hashHeader
		default:
			policy = ""
			k.changed(of.at, object, "requests are not hashed by %s: the target with the fewest requests gets the next one", cmp.Or(of.hashOn, "none"))
		}
	default:
		k.changed(of.at, object, "instead of %s, the target with the fewest requests gets the next one", short(of.algorithm))
	}
	if policy != "" {
		u.Balance = gateway.Member[string]{Present: true, Value: policy}
	}
	if on != "" {
		u.HashOn = gateway.Member[string]{Present: true, Value: on}
	}
	if of.active != nil {
		k.health(of, object, u)
	}
	k.ejection(of, object, u)
}

// targetURL returns the URL of a target, whose port is 8000 if it has none.
func (a *address) targetURL(t *target, base string) string {
	host, port := t.address, "8000"
	if i := strings.LastIndexByte(t.address, ':'); i > 0 && !strings.HasSuffix(t.address, "]") {
		host, port = t.address[:i], t.address[i+1:]
	}
	return a.url(strings.Trim(host, "[]"), port, base)
}

// number returns a number below n, at a path of names; 0 if there is none.
func number(n *document.Node, path ...string) int64 {
	for _, name := range path {
		if n == nil {
			return 0
		}
		n = n.Member(name)
	}
	if n == nil || n.Kind != document.Number {
		return 0
	}
	whole, _, _ := strings.Cut(n.Text, ".")
	v, err := strconv.ParseInt(whole, 10, 32)
	if err != nil {
		return 0
	}
	return v
}

func seconds(n, least, most int64) string { return fmt.Sprintf("%ds", min(max(n, least), most)) }

// health sets the checks of an upstream.
func (k *kong) health(of *upstream, object string, u *gateway.UpstreamPatch) {
	good, bad := number(of.active, "healthy", "interval"), number(of.active, "unhealthy", "interval")
	if good <= 0 && bad <= 0 {
		return
	}
	interval := good
	if good <= 0 || bad > 0 && bad < good {
		interval = bad
	}
	h := gateway.Health{Interval: seconds(interval, 1, 3600), Timeout: seconds(max(number(of.active, "timeout"), 1), 1, 60), Unhealthy: 2, Healthy: 2}
	failures := "http_failures"
	kind := ""
	if n := of.active.Member("type"); n != nil {
		kind = n.Text
	}
	switch kind {
	case "tcp":
		h.TCP, failures = true, "tcp_failures"
	case "grpc", "grpcs":
		h.GRPC = new(string)
	default:
		h.Path = "/"
		if n := of.active.Member("http_path"); n != nil && strings.HasPrefix(n.Text, "/") {
			h.Path = n.Text
		}
		h.Statuses = statuses(of.active)
	}
	if n := number(of.active, "unhealthy", failures); n > 0 {
		h.Unhealthy = int(min(n, 100))
	}
	if n := number(of.active, "healthy", "successes"); n > 0 {
		h.Healthy = int(min(n, 100))
	}
	if n := of.active.Member("headers"); n != nil && !isEmpty(n) {
		k.changed(of.at, object, "its checks have no headers: give them in health")
	}
	if good > 0 && bad > 0 && good != bad {
		k.changed(of.at, object, "targets are checked every %s, healthy or not", h.Interval)
	}
	u.Health = gateway.Member[gateway.Health]{Present: true, Value: h}
}

// statuses returns the good statuses of a check; "" for those of Keygate.
func statuses(active *document.Node) string {
	n := active.Member("healthy")
	if n == nil {
		return ""
	}
	if n = n.Member("http_statuses"); n == nil || n.Kind != document.Sequence || len(n.Nodes) == 0 || len(n.Nodes) > 16 {
		return ""
	}
	var list []string
	for i := range n.Nodes {
		if c, ok := document.Integer(n.Nodes[i].Text); ok && c >= 100 && c < 600 {
			list = append(list, n.Nodes[i].Text)
		}
	}
	return strings.Join(list, ",")
}

// ejection sets when a target is ejected after failed requests.
func (k *kong) ejection(of *upstream, object string, u *gateway.UpstreamPatch) {
	const unhealthy = "unhealthy"
	http, tcp, timeouts := number(of.passive, unhealthy, "http_failures"), number(of.passive, unhealthy, "tcp_failures"), number(of.passive, unhealthy, "timeouts")
	if http <= 0 && tcp <= 0 && timeouts <= 0 {
		k.changed(of.at, object, "a target with 5 failed connections in a row gets no requests for 10 s")
		return
	}
	e := gateway.DefaultEjection()
	e.Failures = 1000
	for _, n := range []int64{http, tcp, timeouts} {
		if n > 0 {
			e.Failures = int(min(n, int64(e.Failures)))
		}
	}
	if timeouts > 0 {
		e.On = append(e.On, gateway.OnTimeout)
	}
	if http > 0 {
		e.On = append(e.On, k.ejecting(of, object)...)
	}
	k.changed(of.at, object, "a target that was taken out after failed requests is tried again after 10 s")
	u.Ejection = gateway.Member[gateway.Ejection]{Present: true, Value: e}
}

// ejecting returns the statuses that eject a target.
func (k *kong) ejecting(of *upstream, object string) (on []string) {
	list := []string{"500", "503"}
	if n := of.passive.Member("unhealthy").Member("http_statuses"); n != nil && n.Kind == document.Sequence {
		list = textsOf(n)
	}
	var others []string
	for _, s := range list {
		switch s {
		case gateway.On502, gateway.On503, gateway.On504:
			if !slices.Contains(on, s) {
				on = append(on, s)
			}
		default:
			others = append(others, s)
		}
	}
	if len(others) > 0 {
		k.changed(of.at, object, "the statuses %s do not take a target out", short(strings.Join(others, ", ")))
	}
	return on
}

// routeCounts counts the routes of a service.
type routeCounts struct {
	all, forwarded, answered int // answered without the service; routes that are not carried are in all alone
}

// reportService adds the lines of a service.
func (k *kong) reportService(s *service, n *routeCounts) {
	object := "service " + short(s.label())
	a, l := k.addresses[s], k.unlocated[s]
	switch {
	case s.disabled:
		k.left(s.at, object, "it is disabled", "nothing to do")
		return
	case n.forwarded == 0 && n.answered > 0:
		k.left(s.at, object, "it gets no requests: the gateway responds to those of its routes", "nothing to do")
		return
	case l.why != "":
		k.left(s.at, object, l.why, l.remedy)
		return
	case n.all == 0:
		k.left(s.at, object, "it has no routes", "nothing to do")
		return
	case n.forwarded == 0:
		k.left(s.at, object, "none of its routes is carried", "see its routes")
		return
	}
	before := len(k.lines)
	if a.scheme == "https" && !s.verify {
		k.changed(s.at, object, "Keygate checks the certificate of the service, and Kong did not: give a private CA as ca of its upstream")
	}
	if s.clientCertificate {
		k.changed(s.at, object, "it has no client certificate: give it as client_certificate and client_key of its upstream")
	}
	if s.caCertificates {
		k.changed(s.at, object, "it has no ca: give it as ca of its upstream")
	}
	for _, t := range []struct {
		name        string
		ms          int64
		least, most int64
	}{{"read_timeout", s.read, 1000, 3_600_000}, {"connect_timeout", s.connect, 100, 60_000}} {
		if t.ms > 0 && (t.ms < t.least || t.ms > t.most) {
			k.changed(at{s.file, max(s.timesLine, s.line)}, object, "%s is %d ms, since it may be %d to %d", t.name, min(max(t.ms, t.least), t.most), t.least, t.most)
		}
	}
	if s.read > 0 && s.read != defaultTimeout {
		k.changed(at{s.file, max(s.timesLine, s.line)}, object, "read_timeout bounds the time to the response headers, and not the time between two reads")
	}
	if s.write > 0 && s.write != defaultTimeout {
		k.changed(at{s.file, max(s.timesLine, s.line)}, object, "there is no write_timeout: a body that stalls for 30 s is broken off")
	}
	if s.retries > gateway.MaxRetryAttempts {
		k.changed(s.at, object, "a request is tried again at most %d times", gateway.MaxRetryAttempts)
	}
	if len(s.odd) > 0 {
		k.changed(s.at, object, "Keygate does not know its %s", short(strings.Join(s.odd, ", ")))
	}
	if len(k.lines) == before {
		k.carried(s.at, object)
	}
}
