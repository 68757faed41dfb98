package snapshot

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unique"

	"github.com/keygate/keygate/internal/balance"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/resolve"
)

// Upstream is where and how a gateway forwards the requests of some of its routes. It is immutable.
type Upstream struct {
	Name    string
	Timeout time.Duration
	// Targets are all targets, in the order of the configuration. There is at least one.
	Targets []*Target
	// Balance chooses between the targets and their addresses. It is nil if there is one target that is not checked and whose
	// name is not looked up, and was so since the node has started, unless a
	// split of the gateway falls back.
	Balance *balance.Upstream
	// HashOn says what the policy hash chooses by.
	HashOn HashOn
	// IdempotencyKey is set if POST and PATCH with Idempotency-Key may be sent to a second target.
	IdempotencyKey bool

	config  balance.Config // for Balance, without the targets and the checks
	check   *Check         // nil without checks
	names   []resolve.Name // of the targets whose names are looked up
	refresh time.Duration  // how often they are

	// resolved has the targets at the addresses of names that config of Balance has. It is guarded by Follower.publishing.
	resolved map[resolvedAt]*Target
}

// resolvedAt is an address of a target whose name is looked up.
type resolvedAt struct {
	target  *Target
	address string
}

// HashOn is what an upstream with the policy hash chooses a target by.
type HashOn struct {
	Principal bool
	Address   bool
	Header    string // the name of a header; "" for none
}

// Several reports whether requests may have several targets or addresses to choose from: there are several targets, or the name
// of one is looked up.
func (u *Upstream) Several() bool { return len(u.Targets) > 1 || u.names != nil }

// Retries reports whether a request may be sent to another target.
func (u *Upstream) Retries() bool { return u.Several() && u.config.Retries.Attempts > 0 }

// Target is where requests go and how connections to it are made. It is immutable: any other setting
// makes another Target.
type Target struct {
	Index     int    // in Upstream.Targets
	ID        string // of the target; the gateway's ID for the first target of its default upstream
	AccountID string // of the gateway
	URL       string // as stored
	// Address is the IP address and port to which connections go, if the name of the target is looked up and has addresses. "" looks the
	// name up at each connect: its addresses, or if SRV is set its SRV records.
	Address string
	SRV     bool
	Base    *url.URL // URL parsed; must not be changed
	Host    string   // the Host that the target gets; "" for the client's
	// ServerName is the name that the certificate of an https target must have; "" for that of URL.
	ServerName string
	CA         string // PEM certificates that replace the system's roots, or ""
	// Client is the client certificate with its chain, and its opened private key, both in
	// PEM. The zero Handle means none.
	Client unique.Handle[[2]string]
	// Connection settings; zero values mean the server's settings.
	ConnectTimeout time.Duration
	IdleTimeout    time.Duration
	MaxConnAge     time.Duration
	MaxConns       int
	// PublicOnly is set if the account may reach only public addresses (contract, 4.6).
	PublicOnly bool
	// Headers are set on every request to the target; opened, sorted by name.
	Headers []Header
	// Withheld are the client's headers that the target does not get, because they are in Headers or may hold the key: those
	// of Keys, which is Requests.Withheld of the same configuration.
	Withheld, Keys []string

	Drain bool // it gets no more attempts

	// Lone counts the requests while the upstream has no Balance. It is set for the only target of an upstream.
	Lone *balance.Lone

	weight int
	backup bool
	lookup *lookup // nil if the name is not looked up
}

// lookup says what is looked up for a target.
type lookup struct {
	name resolve.Name
	port uint16 // of the URL
}

// Header is one header that is set on forwarded requests.
type Header struct{ Name, Value string }

// compileUpstreams sets the upstreams of a gateway. It must be called after compileRequests.
func (f *Follower) compileUpstreams(s *Settings, g *gateway.Gateway) error {
	if len(g.Others) > 0 {
		s.others = make(map[string]*Upstream, len(g.Others))
	}
	for u := range g.AllUpstreams {
		c, err := f.compileUpstream(s, g, u)
		if err != nil {
			return fmt.Errorf("upstream %s: %w", u.FullName(), err)
		}
		if u.Name == "" {
			s.Upstream = c
		} else {
			s.others[u.Name] = c
		}
	}
	return nil
}

func (f *Follower) compileUpstream(s *Settings, g *gateway.Gateway, u *gateway.Upstream) (*Upstream, error) {
	c := &Upstream{Name: u.FullName()}
	var err error
	if c.refresh, err = time.ParseDuration(u.RefreshOf()); err != nil {
		return nil, fmt.Errorf("read refresh: %w", err)
	}
	if c.Timeout, err = time.ParseDuration(cmp.Or(u.Timeout, g.Timeout, gateway.DefaultTimeout)); err != nil {
		return nil, fmt.Errorf("read timeout: %w", err)
	}
	drain, err := time.ParseDuration(cmp.Or(g.Requests.DrainTimeout, gateway.DefaultDrainTimeout))
	if err != nil {
		return nil, fmt.Errorf("read drain_timeout: %w", err)
	}
	if err := c.compileBalance(u, drain); err != nil {
		return nil, err
	}
	base := Target{AccountID: g.AccountID, CA: u.TLS.CA, MaxConns: int(u.MaxConnections), Keys: s.Withheld, Withheld: slices.Clone(s.Withheld)}
	if err := f.compileSecrets(&base, u); err != nil {
		return nil, err
	}
	if err := base.compileConnections(u); err != nil {
		return nil, err
	}
	for _, t := range u.AllTargets() {
		target := base
		target.ID, target.Index = g.ID, len(c.Targets)
		if u.Name != "" || target.Index > 0 {
			target.ID += " " + c.Name + " " + t.URL
		}
		if err := target.compileURL(u, &t); err != nil {
			return nil, err
		}
		c.Targets = append(c.Targets, &target)
		if target.lookup != nil {
			c.names = append(c.names, target.lookup.name)
		}
	}
	if c.check, err = f.compileCheck(u, c.Targets[0]); err != nil {
		return nil, err
	}
	return c, nil
}

// compileURL sets what follows from the target's URL.
func (t *Target) compileURL(u *gateway.Upstream, of *gateway.Target) (err error) {
	t.URL, t.weight, t.backup, t.Drain = of.URL, of.WeightOf(), of.Backup, of.Drain
	if t.Base, err = url.Parse(of.URL); err != nil {
		return fmt.Errorf("read the URL of a target: %w", err)
	}
	if err := t.compileLookup(of); err != nil {
		return err
	}
	switch t.Host = u.Host; t.Host {
	case "":
		t.Host = t.Base.Host
	case gateway.PreserveHost:
		t.Host = ""
	default:
		if u.ProvesHost() {
			t.ServerName, _, _ = strings.Cut(u.Host, ":")
		}
	}
	return nil
}

// compileLookup sets what is looked up for the target.
func (t *Target) compileLookup(of *gateway.Target) error {
	l := lookup{name: resolve.Name{Host: strings.ToLower(t.Base.Hostname())}}
	switch of.ResolveOf() {
	case gateway.ResolveNone:
		return nil
	case gateway.ResolveSRV:
		l.name.Kind, t.SRV = resolve.Services, true
	case gateway.ResolveA:
		u, err := gateway.ParseUpstreamURL(of.URL)
		if err != nil {
			return fmt.Errorf("read the URL of a target: %w", err)
		}
		port, err := strconv.ParseUint(u.Port, 10, 16)
		if err != nil {
			return fmt.Errorf("read the URL of a target: %w", err)
		}
		l.port = uint16(port)
	default:
		return fmt.Errorf("unknown value of resolve: %q", of.Resolve)
	}
	t.lookup = &l
	return nil
}

// compileSecrets opens the headers and the client's key.
func (f *Follower) compileSecrets(t *Target, u *gateway.Upstream) (err error) {
	if t.Headers, err = f.openHeaders(u.Headers); err != nil {
		return err
	}
	for i := range t.Headers {
		t.Withheld = append(t.Withheld, t.Headers[i].Name)
	}
	if u.TLS.ClientCertificate == "" {
		return nil
	}
	key, err := f.open(u.TLS.ClientKey)
	if err != nil {
		return fmt.Errorf("decrypt upstream_client_key: %w", err)
	}
	t.Client = unique.Make([2]string{u.TLS.ClientCertificate, key})
	return nil
}

// compileConnections sets the settings of connections.
func (t *Target) compileConnections(u *gateway.Upstream) (err error) {
	if t.ConnectTimeout, err = optionalDuration(u.Timeouts.Connect); err != nil {
		return fmt.Errorf("read upstream_connect_timeout: %w", err)
	}
	if t.ConnectTimeout == 0 && (u.Several() || u.LooksUp()) {
		t.ConnectTimeout = gateway.SeveralConnectTimeout
	}
	if t.IdleTimeout, err = optionalDuration(u.Timeouts.Idle); err != nil {
		return fmt.Errorf("read upstream_idle_timeout: %w", err)
	}
	if t.MaxConnAge, err = optionalDuration(u.MaxConnectionAge); err != nil {
		return fmt.Errorf("read upstream_max_connection_age: %w", err)
	}
	return nil
}

// compileBalance sets how the targets are chosen.
func (u *Upstream) compileBalance(of *gateway.Upstream, drain time.Duration) error {
	switch of.Balance.PolicyOf() {
	case gateway.RoundRobin:
		u.config.Policy = balance.RoundRobin
	case gateway.Hash:
		u.config.Policy = balance.Hash
		header, isHeader := strings.CutPrefix(of.Balance.HashOn, gateway.HashHeader)
		u.HashOn = HashOn{Principal: of.Balance.HashOn == gateway.HashPrincipal, Address: of.Balance.HashOn == gateway.HashAddress}
		if isHeader {
			u.HashOn.Header = header
		}
	}
	r := of.RetriesOf()
	u.IdempotencyKey = r.IdempotencyKey
	u.config.DrainTimeout = drain
	u.config.Retries = balance.Retries{Attempts: r.Attempts, BudgetPercent: r.BudgetPercent, On: resultsOf(r.On)}
	e := of.EjectionOf()
	if e.Off {
		return nil
	}
	base, err := time.ParseDuration(e.Base)
	most, errMax := time.ParseDuration(e.Max)
	if err = errors.Join(err, errMax); err != nil {
		return fmt.Errorf("read ejection: %w", err)
	}
	u.config.Ejection = balance.Ejection{Failures: e.Failures, On: resultsOf(e.On), Base: base, Max: most, MaxPercent: e.MaxPercent}
	return nil
}

// resultsOf returns the results that a field `on` names.
func resultsOf(on []string) balance.Results {
	var all balance.Results
	for r := balance.Connect; r <= balance.GRPCUnavailable; r++ {
		if slices.Contains(on, r.String()) {
			all |= balance.On(r)
		}
	}
	return all
}

// Bounds of the addresses of looked-up names (targets.md, section 5).
const (
	// maxAddresses is the most addresses of an upstream, unless it has more targets: each target has an equal part of them.
	maxAddresses = 1024
	// maxWeight is the highest weight of an address: that of the target times that of the SRV record.
	maxWeight = 1_000_000
)

// balanceConfig returns the configuration of u's Balance, with the addresses that are known of the names of its targets. A
// target of whose name none is known is one address, whose name is looked up at each connect. If all that are
// known are refused, the target still shows the name, but connects to the first of them, which the guard refuses: connections to an
// address that the name had before serve no more requests. The caller holds f.publishing.
func (f *Follower) balanceConfig(u *Upstream, account string) *balance.Config {
	c, most := u.config, max(1, min(resolve.MaxRecords, maxAddresses/len(u.Targets)))
	before := u.resolved
	u.resolved = nil
	c.Check = u.check.id(u.Targets[0].PublicOnly)
	for _, t := range u.Targets {
		one := balance.TargetConfig{URL: t.URL, Weight: t.weight, Backup: t.backup, Drain: t.Drain, ByName: true, Unchecked: t.SRV, Use: t}
		one.Origin, one.Address = t.sharedBy()
		if t.lookup == nil || f.cfg.Names == nil {
			c.Targets = append(c.Targets, one)
			continue
		}
		addresses, refused, degraded := f.addressesOf(t, account)
		one.Degraded = degraded
		if len(addresses) == 0 {
			if refused.IsValid() {
				one.Use = u.resolveTo(t, refused.String(), before, len(c.Targets))
			}
			c.Targets = append(c.Targets, one)
			continue
		}
		for _, a := range addresses[:min(len(addresses), most)] {
			at := one
			at.Address, at.ByName, at.Unchecked = a.to.String(), false, false
			at.Weight = min(maxWeight, t.weight*a.Weight)
			at.Backup = t.backup || a.Backup
			at.Use = u.resolveTo(t, at.Address, before, len(c.Targets))
			c.Targets = append(c.Targets, at)
		}
	}
	return &c
}

// foundAddress is an address that was looked up.
type foundAddress struct {
	resolve.Record
	to netip.AddrPort
}

// addressesOf returns the addresses that are known of the name of a target, without those that its account may not see, of which
// refused is the first. degraded is set if the list may be old, or does not have all.
func (f *Follower) addressesOf(t *Target, account string) (list []foundAddress, refused netip.AddrPort, degraded bool) {
	found := f.cfg.Names.Found(account, t.lookup.name)
	hides := t.PublicOnly && f.cfg.MayReach != nil
	for _, r := range found.Records {
		to := netip.AddrPortFrom(r.Addr, cmp.Or(r.Port, t.lookup.port))
		switch {
		case !hides || f.cfg.MayReach(to):
			list = append(list, foundAddress{r, to})
		case !refused.IsValid():
			refused = to
		}
	}
	return list, refused, found.Degraded || len(list) > 0 && len(list) < len(found.Records)
}

// resolveTo returns the target of u with connections that go to an address, the one in before if it has it, and keeps it in
// u.resolved.
func (u *Upstream) resolveTo(t *Target, address string, before map[resolvedAt]*Target, index int) *Target {
	key := resolvedAt{t, address}
	use := before[key]
	if use == nil {
		use = t.resolvedTo(address, index)
	}
	if u.resolved == nil {
		u.resolved = map[resolvedAt]*Target{}
	}
	u.resolved[key] = use
	return use
}

// resolvedTo returns the target with connections that go to an address.
func (t *Target) resolvedTo(address string, index int) *Target {
	at := *t
	at.Address, at.Index = address, index
	at.ID += " " + address
	return &at
}

// Resolved puts into force what is known now of the names of an upstream. A publication does that too: whichever comes last has
// the newest configuration and the newest addresses.
func (f *Follower) Resolved(of balance.Name) {
	f.publishing.Lock()
	defer f.publishing.Unlock()
	g := f.Current().gateways[of.Gateway]
	if g == nil || g.AccountID != of.Account {
		return
	}
	for u := range g.Upstreams {
		if u.Name == of.Upstream && u.Balance != nil {
			f.cfg.Fleet.Upstream(time.Duration(f.cfg.Now().Mono), of, f.balanceConfig(u, of.Account))
		}
	}
}

// want says which names of an upstream are looked up, and how often.
func (f *Follower) want(of balance.Name, u *Upstream) {
	switch {
	case f.cfg.Names == nil:
	case u == nil:
		f.cfg.Names.Want(of, 0, nil)
	default:
		f.cfg.Names.Want(of, u.refresh, u.names)
	}
}

// sharedBy returns the origin and the address of the target, by which it shares its state with other targets.
func (t *Target) sharedBy() (origin, address string) {
	u, err := gateway.ParseUpstreamURL(t.URL)
	if err != nil {
		return t.URL, t.Base.Host
	}
	return u.Origin(), net.JoinHostPort(u.Host, u.Port)
}

// UpstreamOf returns the upstream of a route. It has no target if the gateway does not have the upstream, which management
// does not allow.
func (s *Settings) UpstreamOf(r *Route) *Upstream {
	if r.upstream == (unique.Handle[string]{}) {
		return s.Upstream
	}
	if u := s.others[r.upstream.Value()]; u != nil {
		return u
	}
	return &Upstream{Name: r.upstream.Value()}
}

// Upstreams calls yield for each upstream, the default one first.
func (s *Settings) Upstreams(yield func(*Upstream) bool) {
	if s.Upstream == nil || !yield(s.Upstream) {
		return
	}
	for _, u := range s.others {
		if !yield(u) {
			return
		}
	}
}

// isPublicOnly reports whether the targets are for an account that may reach only public addresses.
func (s *Settings) isPublicOnly() bool { return s.Upstream != nil && s.Upstream.Targets[0].PublicOnly }

// withPublicOnly returns settings whose targets have another PublicOnly.
func (s *Settings) withPublicOnly(only bool) *Settings {
	return s.withTargets(func(t *Target) { t.PublicOnly = only })
}

// withTargets returns settings whose targets are changed by edit.
func (s *Settings) withTargets(edit func(*Target)) *Settings {
	other := *s
	other.others = make(map[string]*Upstream, len(s.others))
	for u := range s.Upstreams {
		next := *u
		next.resolved = nil
		next.Targets = make([]*Target, len(u.Targets))
		for i, t := range u.Targets {
			target := *t
			edit(&target)
			next.Targets[i] = &target
		}
		if u == s.Upstream {
			other.Upstream = &next
		} else {
			other.others[u.Name] = &next
		}
	}
	return &other
}

// putUpstreams makes the fleet choose between the targets of a gateway as now says, which may be nil, in place of was,
// which may be nil. Nothing else uses now yet. It returns the upstreams that are gone, which the caller drops once nothing new
// uses was.
func (f *Follower) putUpstreams(was, now *Gateway) (gone []balance.Name) {
	if was != nil && now != nil && was.Settings == now.Settings {
		return nil
	}
	at := time.Duration(f.cfg.Now().Mono)
	had := map[string]*Upstream{}
	if was != nil {
		for u := range was.Upstreams {
			had[u.Name] = u
		}
	}
	if now != nil {
		for u := range now.Upstreams {
			f.putUpstream(at, fleetName(now, u.Name), had[u.Name], u, now.fallsBack())
			delete(had, u.Name)
		}
	}
	for name, u := range had {
		if n := fleetName(was, name); u.Balance != nil {
			gone = append(gone, n)
		} else if lone := u.Lone(); lone != nil {
			f.cfg.Fleet.EndAlone(at, n, lone, nil, u.config.DrainTimeout)
		}
	}
	return gone
}

// putUpstream makes the fleet choose between the targets of an upstream as now says, in place of was, which may be nil. The
// only target of an upstream is counted, unless observed is set: then its state must be known, too.
func (f *Follower) putUpstream(at time.Duration, n balance.Name, was, now *Upstream, observed bool) {
	fleet := f.cfg.Fleet
	var lone *balance.Lone
	if was != nil {
		lone = was.Lone()
	}
	if observed || now.Several() || now.check != nil || was != nil && was.Balance != nil {
		f.want(n, now)
		now.Balance = fleet.Upstream(at, n, f.balanceConfig(now, n.Account))
		if lone != nil {
			fleet.EndAlone(at, n, lone, now.Balance, now.config.DrainTimeout)
		}
		return
	}
	t := now.Targets[0]
	_, address := t.sharedBy()
	t.Lone = fleet.Alone(at, n, lone, t.URL, address, t.Drain, now.config.DrainTimeout)
}

// Lone returns what counts the requests to the only target, or nil if there is a Balance.
func (u *Upstream) Lone() *balance.Lone {
	if u.Balance != nil || len(u.Targets) == 0 {
		return nil
	}
	return u.Targets[0].Lone
}

// ReturnChangeID returns the ID of a ReturnChange.
func ReturnChangeID(n balance.Name, url string) string {
	return strings.Join([]string{n.Account, n.Gateway, n.Upstream, url}, " ")
}

// returnTarget puts a ReturnChange in force. A target that the change log names and this node does not have yet is not ejected.
func (f *Follower) returnTarget(c Change) {
	if parts := strings.SplitN(c.ID, " ", 4); len(parts) == 4 {
		n := balance.Name{Account: parts[0], Gateway: parts[1], Upstream: parts[2]}
		f.cfg.Fleet.Return(time.Duration(f.cfg.Now().Mono), n, parts[3])
	}
}

// fallsBack reports whether a split may send requests elsewhere because no target of an upstream takes part. Then that must be
// known of upstreams with one target, too.
func (g *Gateway) fallsBack() bool { return g.fallbacks > 0 || g.split.hasFallback() }

func fleetName(g *Gateway, upstream string) balance.Name {
	return balance.Name{Account: g.AccountID, Gateway: g.ID, Upstream: upstream}
}

// open decrypts a sealed value from the store.
func (f *Follower) open(sealed []byte) (string, error) {
	if f.cfg.OpenSealed == nil {
		return "", errors.New("no secret key is configured")
	}
	plain, err := f.cfg.OpenSealed(sealed)
	return string(plain), err
}

// optionalDuration parses a duration; "" is 0.
func optionalDuration(s string) (time.Duration, error) {
	if s == "" {
		return 0, nil
	}
	return time.ParseDuration(s)
}
