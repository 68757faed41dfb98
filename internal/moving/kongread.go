package moving

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/keygate/keygate/internal/document"
)

// Deck is a file of decK, or of Kong without a database, that was read.
type Deck struct {
	name     string
	version  string
	defaults map[string]*document.Node // _info.defaults, by the name of the entity
	configs  map[string]*document.Node // _plugin_configs

	services  []*service
	routes    []*route // without a service, or with a reference to one
	upstreams []*upstream
	consumers []*consumer
	groups    []*group
	plugins   []*plugin
	keys      []*credential // with references to consumers
	acls      []*membership
	targets   []*target
	others    []other // what has no counterpart
}

// other is an object that is only reported.
type other struct {
	at
	object, why, remedy string
}

// entity is what all objects of Kong have.
type entity struct {
	at
	id, name string
	odd      []string // names of fields that are not known
}

// is reports whether a reference means the object.
func (e *entity) is(ref string) bool { return ref != "" && (ref == e.id || ref == e.name) }

type service struct {
	entity
	url                          string // "" if the parts are given
	protocol, host, path         string
	port                         int64
	connect, read, write         int64 // timeouts in milliseconds; 0 for the default
	retries                      int64 // -1 for the default
	disabled                     bool
	clientCertificate            bool
	caCertificates               bool
	verify                       bool // tls_verify
	urlLine, pathLine, timesLine int

	routes  []*route
	plugins []*plugin
}

type route struct {
	entity
	serviceRef     string
	service        *service // nil for none
	paths          []textAt
	methods, hosts []textAt
	headers, snis  bool
	expression     bool
	protocols      []string
	keepPath       bool // strip_path: false
	preserveHost   bool
	priority       int64
	v1             bool // path_handling

	plugins []*plugin
	order   int // among all routes of the files
}

// textAt is a text with its line.
type textAt struct {
	text string
	line int
}

type upstream struct {
	entity
	algorithm, hashOn, hashHeader, hostHeader string
	active, passive                           *document.Node
	targets                                   []*target
}

type target struct {
	at
	address     string
	weight      int64
	upstreamRef string
}

type consumer struct {
	entity
	customID string
	keys     []*credential
	groups   []string // of acl
	member   []string // names of consumer groups
	plugins  []*plugin
}

// label is what reports call the consumer.
func (c *consumer) label() string {
	for _, s := range []string{c.name, c.customID, c.id} {
		if s != "" {
			return s
		}
	}
	return fmt.Sprintf("at line %d", c.line)
}

type group struct {
	entity
	plugins   []*plugin
	consumers []string
}

// credential is a key of key-auth.
type credential struct {
	at
	key         string
	ttl         bool
	consumerRef string
}

// membership is an entry of the top-level section acls.
type membership struct {
	consumerRef, group string
}

type plugin struct {
	entity
	disabled bool
	config   []*document.Node // the first that has a field decides

	routeRef, serviceRef, consumerRef, groupRef string
	route                                       *route
	service                                     *service
	consumer                                    *consumer
	group                                       *group

	transform *transform // see transformOf

	used     bool // by a route, or by a consumer
	dangling bool // of an object that is in no file
}

// get returns a field of the configuration; nil if it is absent or null.
func (p *plugin) get(name string) *document.Node {
	for _, n := range p.config {
		if m := n.Member(name); m != nil {
			if m.Kind == document.Null {
				return nil
			}
			return m
		}
	}
	return nil
}

// label is what reports call the plugin.
func (p *plugin) label() string {
	var of []string
	switch {
	case p.consumer != nil:
		of = append(of, "consumer "+short(p.consumer.label()))
	case p.group != nil:
		of = append(of, "consumer group "+short(p.group.name))
	}
	switch {
	case p.route != nil:
		of = append(of, "route "+short(p.route.label()))
	case p.service != nil:
		of = append(of, "service "+short(p.service.label()))
	}
	if len(of) == 0 {
		return "plugin " + short(p.name)
	}
	return "plugin " + short(p.name) + " of " + strings.Join(of, " and ")
}

func (s *service) label() string {
	for _, t := range []string{s.name, s.id, s.host} {
		if t != "" {
			return t
		}
	}
	return fmt.Sprintf("at line %d", s.line)
}

func (r *route) label() string {
	for _, t := range []string{r.name, r.id} {
		if t != "" {
			return t
		}
	}
	if len(r.paths) > 0 {
		return r.paths[0].text
	}
	return fmt.Sprintf("at line %d", r.line)
}

// deckEnv is how a file of decK refers to a variable of the environment.
var deckEnv = regexp.MustCompile(`\$\{\{\s*env\s+"([A-Za-z_][A-Za-z0-9_]*)"\s*(?:\|\s*[A-Za-z]+\s*)?\}\}`)

// deckVariable is what deckEnv becomes.
var deckVariable = regexp.MustCompile(`\$\{env:[A-Za-z_][A-Za-z0-9_]*\}`)

// isReference reports whether a text stands for a value that is not in the file.
func isReference(s string) bool {
	t := strings.TrimSpace(s)
	return strings.Contains(t, document.EnvMark) || strings.Contains(t, "${{") || strings.HasPrefix(t, "{vault://") || placeholder.MatchString(t)
}

// placeholder matches what people write for a value that a script puts in: $KEY, ${KEY}, {KEY}, {{ key }}, <key>, %%KEY%%, __KEY__.
var placeholder = regexp.MustCompile(`^(?:\$\{?[A-Za-z_][\w.:-]*\}?|\{+[^{}]*\}+|<[^<>]*>|%%\w+%%|__\w+__|\[\[?[^\]]*\]\]?)$`)

// ReadKong reads a file of decK in the formats 1.1 and 3.0, in YAML or JSON. name is what the report calls it. The error is
// a validation error that lists everything that is wrong, each with its line and column.
func ReadKong(name string, content []byte) (*Deck, error) {
	if len(content) > MaxFile {
		return nil, tooLarge()
	}
	root, err := document.Parse(content)
	if err != nil {
		return nil, err
	}
	d := &Deck{name: name, defaults: map[string]*document.Node{}, configs: map[string]*document.Node{}}
	r := &kongReader{deck: d}
	r.refuseOurEnv(root)
	r.file(root)
	return d, r.problems.Err()
}

// kongReader reads the objects of a file.
type kongReader struct {
	deck     *Deck
	problems document.Problems
}

// refuseOurEnv refuses Keygate's own reference to a variable: the files that are written would replace it on the machine
// that applies them.
func (r *kongReader) refuseOurEnv(n *document.Node) {
	if strings.Contains(n.Text, document.EnvMark) || strings.Contains(n.Name, document.EnvMark) {
		r.problems.Add(n.Invalid("", "must not contain ${env:, which configuration files of Keygate replace by a variable: remove it, or write ${{ env \"NAME\" }} as decK does"))
	}
	for i := range n.Nodes {
		if r.problems.Full() {
			return
		}
		r.refuseOurEnv(&n.Nodes[i])
	}
}

func (r *kongReader) at(n *document.Node) at { return at{r.deck.name, int(n.Line)} }

// mapping returns the members of an object by their names, with defaults behind them; nil if it is no object.
func (r *kongReader) mapping(n *document.Node, field, kind string) []*document.Node {
	if n.Kind != document.Mapping {
		if n.Kind != document.Null {
			r.problems.Add(n.Mismatch(field, document.Mapping, ""))
		}
		return nil
	}
	var all []*document.Node
	for i := range n.Nodes {
		all = append(all, &n.Nodes[i])
	}
	if d := r.deck.defaults[kind]; d != nil {
		for i := range d.Nodes {
			if n.Member(d.Nodes[i].Name) == nil {
				all = append(all, &d.Nodes[i])
			}
		}
	}
	return all
}

// each calls f for each item of a list, which may be null.
func (r *kongReader) each(n *document.Node, field string, f func(m *document.Node, field string)) {
	switch n.Kind {
	case document.Null:
		return
	case document.Sequence:
	default:
		r.problems.Add(n.Mismatch(field, document.Sequence, ""))
		return
	}
	for i := range n.Nodes {
		if r.problems.Full() {
			return
		}
		item := fmt.Sprintf("%s[%d]", field, i)
		if n.Nodes[i].Kind == document.Null {
			r.problems.Add(n.Nodes[i].Invalid(item, "has no content: remove it, or indent what belongs to it"))
			continue
		}
		f(&n.Nodes[i], item)
	}
}

// readAll appends what read makes of each item of a list, which may be null.
func readAll[T any](r *kongReader, n *document.Node, field string, to *[]T, read func(n *document.Node, field string) T) {
	r.each(n, field, func(m *document.Node, field string) { *to = append(*to, read(m, field)) })
}

// text reads a string; a number or boolean counts as its text. null is "".
func (r *kongReader) text(n *document.Node, field string) string {
	switch n.Kind {
	case document.String:
		return deckEnv.ReplaceAllString(n.Text, "$${env:$1}")
	case document.Number, document.Bool:
		return n.Text
	case document.Null:
		return ""
	}
	r.problems.Add(n.Mismatch(field, document.String, ""))
	return ""
}

func (r *kongReader) texts(n *document.Node, field string) (list []textAt) {
	r.each(n, field, func(m *document.Node, field string) {
		list = append(list, textAt{r.text(m, field), int(m.Line)})
	})
	return list
}

// count reads a whole number, or returns unset for null and for a reference.
func (r *kongReader) count(n *document.Node, field string, unset int64) int64 {
	if n.Kind == document.Null || n.Kind == document.String && isReference(r.text(n, field)) {
		return unset
	}
	if n.Kind == document.String {
		if c, ok := document.Integer(n.Text); ok {
			return c
		}
	}
	c, err := n.ReadCount(field)
	r.problems.Add(err)
	return c
}

func (r *kongReader) bool(n *document.Node, field string) bool {
	switch {
	case n.Kind == document.Bool:
		return n.Text == "true"
	case n.Kind == document.Null:
		return false
	}
	r.problems.Add(n.Mismatch(field, document.Bool, ""))
	return false
}

// ref reads a reference to another object: its name or identifier, or an object that has one of them.
func (r *kongReader) ref(n *document.Node, field string) string {
	if n.Kind != document.Mapping {
		return r.text(n, field)
	}
	for _, name := range []string{"name", "id", "username", "custom_id"} {
		if m := n.Member(name); m != nil {
			return r.text(m, field+"."+name)
		}
	}
	r.problems.Add(n.Invalid(field, "must be the name or id of an object, or have one of them"))
	return ""
}

// Versions of the format that are read. 2.1 is that of Kong without a database, with what 1.1 has.
func deckVersions() []string { return []string{"1.1", "2.1", "3.0"} }

// file reads the whole file.
func (r *kongReader) file(root *document.Node) {
	if root.Kind != document.Mapping {
		r.problems.Add(root.Mismatch("", document.Mapping, "a mapping with _format_version and services"))
		return
	}
	r.header(root)
	for i := range root.Nodes {
		m := &root.Nodes[i]
		switch m.Name {
		case "services":
			readAll(r, m, m.Name, &r.deck.services, r.service)
		case "routes":
			readAll(r, m, m.Name, &r.deck.routes, r.route)
		case "upstreams":
			readAll(r, m, m.Name, &r.deck.upstreams, r.upstream)
		case "targets":
			readAll(r, m, m.Name, &r.deck.targets, r.target)
		case "consumers":
			readAll(r, m, m.Name, &r.deck.consumers, r.consumer)
		case "consumer_groups":
			readAll(r, m, m.Name, &r.deck.groups, r.group)
		case "plugins":
			readAll(r, m, m.Name, &r.deck.plugins, r.plugin)
		case "filter_chains":
			readAll(r, m, m.Name, &r.deck.plugins, r.filterChain)
		case "keyauth_credentials":
			readAll(r, m, m.Name, &r.deck.keys, r.credential)
		case "acls":
			r.each(m, m.Name, func(n *document.Node, f string) { r.acl(n, f, nil) })
		case "_format_version", "_info", "_plugin_configs", "_workspace", "_konnect", "_transform", "_comment", "_ignore", "tags":
		default:
			r.others(m)
		}
		if r.problems.Full() {
			return
		}
	}
}

// header reads what the objects depend on.
func (r *kongReader) header(root *document.Node) {
	v := root.Member("_format_version")
	if v == nil {
		r.problems.Add(root.Invalid("_format_version", "is missing: is this a file of decK? Write one with deck gateway dump, whose first line is _format_version: \"3.0\""))
		return
	}
	r.deck.version = r.text(v, v.Name)
	if whole := map[string]string{"1": "1.1", "2": "2.1", "3": "3.0"}[r.deck.version]; whole != "" {
		r.deck.version = whole
	}
	if !slices.Contains(deckVersions(), r.deck.version) {
		r.problems.Add(v.Invalid(v.Name, "%q is not a format that can be read: convert the file to 3.0 with deck file convert", short(r.deck.version)))
	}
	if info := root.Member("_info"); info != nil && info.Kind == document.Mapping {
		if d := info.Member("defaults"); d != nil && d.Kind == document.Mapping {
			for i := range d.Nodes {
				r.deck.defaults[d.Nodes[i].Name] = &d.Nodes[i]
			}
		}
	}
	if c := root.Member("_plugin_configs"); c != nil && c.Kind == document.Mapping {
		for i := range c.Nodes {
			r.deck.configs[c.Nodes[i].Name] = &c.Nodes[i]
		}
	}
}

// common reads the fields that all objects have, and reports whether m is one of them.
func (r *kongReader) common(e *entity, m *document.Node, field string) bool {
	switch m.Name {
	case "id":
		e.id = r.text(m, field)
	case "name", "username":
		e.name = r.text(m, field)
	case "tags", "created_at", "updated_at", "_comment", "_ignore", "_transform", "ws_id":
	default:
		return false
	}
	return true
}

func (r *kongReader) service(n *document.Node, field string) *service {
	s := &service{entity: entity{at: r.at(n)}, protocol: "http", port: -1, retries: -1}
	for _, m := range r.mapping(n, field, "service") {
		f := field + "." + m.Name
		switch m.Name {
		case "url":
			s.url, s.urlLine = r.text(m, f), int(m.Line)
		case "protocol":
			s.protocol = r.text(m, f)
		case "host":
			s.host, s.urlLine = r.text(m, f), int(m.Line)
		case "port":
			s.port = r.count(m, f, -2)
		case "path":
			s.path, s.pathLine = r.text(m, f), int(m.Line)
		case "connect_timeout":
			s.connect, s.timesLine = r.count(m, f, 0), int(m.Line)
		case "read_timeout":
			s.read, s.timesLine = r.count(m, f, 0), int(m.Line)
		case "write_timeout":
			s.write, s.timesLine = r.count(m, f, 0), int(m.Line)
		case "retries":
			s.retries = r.count(m, f, -1)
		case "enabled":
			s.disabled = m.Kind == document.Bool && m.Text == "false"
		case "client_certificate":
			s.clientCertificate = m.Kind != document.Null
		case "ca_certificates":
			s.caCertificates = m.Kind != document.Null && len(m.Nodes) > 0
		case "tls_verify":
			s.verify = r.bool(m, f)
		case "tls_verify_depth", "tls_sans":
		case "routes":
			readAll(r, m, f, &s.routes, r.route)
			for _, t := range s.routes {
				t.service = s
			}
		case "plugins":
			readAll(r, m, f, &s.plugins, r.plugin)
			for _, p := range s.plugins {
				p.service = s
			}
		default:
			if !r.common(&s.entity, m, f) {
				s.odd = append(s.odd, m.Name)
			}
		}
	}
	return s
}

func (r *kongReader) route(n *document.Node, field string) *route {
	t := &route{entity: entity{at: r.at(n)}}
	for _, m := range r.mapping(n, field, "route") {
		f := field + "." + m.Name
		switch m.Name {
		case "service":
			t.serviceRef = r.ref(m, f)
		case "paths":
			t.paths = r.texts(m, f)
		case "methods":
			t.methods = r.texts(m, f)
		case "hosts":
			t.hosts = r.texts(m, f)
		case "headers":
			t.headers = m.Kind != document.Null && len(m.Nodes) > 0
		case "snis":
			t.snis = m.Kind != document.Null && len(m.Nodes) > 0
		case "expression":
			t.expression = m.Kind != document.Null
		case "priority":
		case "protocols":
			for _, p := range r.texts(m, f) {
				t.protocols = append(t.protocols, p.text)
			}
		case "strip_path":
			t.keepPath = !r.bool(m, f) && m.Kind == document.Bool
		case "preserve_host":
			t.preserveHost = r.bool(m, f)
		case "regex_priority":
			t.priority = r.count(m, f, 0)
		case "path_handling":
			t.v1 = r.text(m, f) == "v1"
		case "sources", "destinations":
			if m.Kind != document.Null && len(m.Nodes) > 0 {
				t.odd = append(t.odd, m.Name)
			}
		case "https_redirect_status_code", "request_buffering", "response_buffering":
		case "plugins":
			readAll(r, m, f, &t.plugins, r.plugin)
			for _, p := range t.plugins {
				p.route = t
			}
		default:
			if !r.common(&t.entity, m, f) {
				t.odd = append(t.odd, m.Name)
			}
		}
	}
	return t
}

func (r *kongReader) plugin(n *document.Node, field string) *plugin {
	p := &plugin{entity: entity{at: r.at(n)}}
	for _, m := range r.mapping(n, field, "") {
		f := field + "." + m.Name
		switch m.Name {
		case "config":
			if m.Kind != document.Null && m.Kind != document.Mapping {
				r.problems.Add(m.Mismatch(f, document.Mapping, ""))
			}
			p.config = append([]*document.Node{m}, p.config...)
		case "_config":
			shared := r.text(m, f)
			if c := r.deck.configs[shared]; c != nil {
				p.config = append(p.config, c)
			} else {
				r.problems.Add(m.Invalid(f, "%q is not in _plugin_configs", short(shared)))
			}
		case "enabled":
			p.disabled = m.Kind == document.Bool && m.Text == "false"
		case "route":
			p.routeRef = r.refOrNone(m, f)
		case "service":
			p.serviceRef = r.refOrNone(m, f)
		case "consumer":
			p.consumerRef = r.refOrNone(m, f)
		case "consumer_group":
			p.groupRef = r.refOrNone(m, f)
		case "partials":
			if m.Kind != document.Null {
				p.odd = append(p.odd, m.Name)
			}
		case "protocols", "run_on", "ordering", "instance_name":
		default:
			if !r.common(&p.entity, m, f) {
				p.odd = append(p.odd, m.Name)
			}
		}
	}
	if p.name == "" && n.Kind == document.Mapping && !strings.HasPrefix(field, "filter_chains") {
		r.problems.Add(n.Invalid(field+".name", "is missing: name the plugin"))
	}
	return p
}

// filterChain reads a chain of filters in WebAssembly as a plugin that nothing is known of.
func (r *kongReader) filterChain(n *document.Node, field string) *plugin {
	p := r.plugin(n, field)
	p.name = "filter-chain"
	return p
}

func (r *kongReader) refOrNone(m *document.Node, field string) string {
	if m.Kind == document.Null {
		return ""
	}
	return r.ref(m, field)
}

func (r *kongReader) upstream(n *document.Node, field string) *upstream {
	u := &upstream{entity: entity{at: r.at(n)}}
	for _, m := range r.mapping(n, field, "upstream") {
		f := field + "." + m.Name
		switch m.Name {
		case "algorithm":
			u.algorithm = r.text(m, f)
		case "hash_on":
			u.hashOn = r.text(m, f)
		case "hash_on_header":
			u.hashHeader = r.text(m, f)
		case "host_header":
			u.hostHeader = r.text(m, f)
		case "healthchecks":
			if m.Kind == document.Mapping {
				u.active, u.passive = m.Member("active"), m.Member("passive")
			}
		case "targets":
			readAll(r, m, f, &u.targets, r.target)
		case "slots", "hash_fallback", "hash_fallback_header", "hash_on_cookie", "hash_on_cookie_path", "hash_fallback_query_arg",
			"hash_fallback_uri_capture", "hash_on_query_arg", "hash_on_uri_capture", "use_srv_name", "sticky_sessions_cookie", "sticky_sessions_cookie_path":
		default:
			if !r.common(&u.entity, m, f) {
				u.odd = append(u.odd, m.Name)
			}
		}
	}
	return u
}

func (r *kongReader) target(n *document.Node, field string) *target {
	t := &target{at: r.at(n), weight: 100}
	for _, m := range r.mapping(n, field, "target") {
		f := field + "." + m.Name
		switch m.Name {
		case "target":
			t.address = r.text(m, f)
		case "weight":
			t.weight = r.count(m, f, 100)
		case "upstream":
			t.upstreamRef = r.ref(m, f)
		}
	}
	if t.address == "" && n.Kind == document.Mapping {
		r.problems.Add(n.Invalid(field+".target", "is missing: write the host and port"))
	}
	return t
}

func (r *kongReader) consumer(n *document.Node, field string) *consumer {
	c := &consumer{entity: entity{at: r.at(n)}}
	for _, m := range r.mapping(n, field, "consumer") {
		f := field + "." + m.Name
		switch m.Name {
		case "custom_id":
			c.customID = r.text(m, f)
		case "keyauth_credentials":
			readAll(r, m, f, &c.keys, r.credential)
		case "acls":
			r.each(m, f, func(n *document.Node, f string) { r.acl(n, f, c) })
		case "groups":
			readAll(r, m, f, &c.member, r.ref)
		case "plugins":
			readAll(r, m, f, &c.plugins, r.plugin)
			for _, p := range c.plugins {
				p.consumer = c
			}
		default:
			if isCredentials(m.Name) {
				r.each(m, f, func(n *document.Node, _ string) {
					r.deck.others = append(r.deck.others, other{r.at(n), credentialName(m.Name) + " of consumer " + short(c.label()), onlyKeys, keyForCaller})
				})
			} else if !r.common(&c.entity, m, f) {
				c.odd = append(c.odd, m.Name)
			}
		}
	}
	return c
}

// isCredentials reports whether a section has credentials other than those of key-auth, which have a section of their own.
func isCredentials(section string) bool {
	return strings.HasSuffix(section, "_credentials") || section == "jwt_secrets"
}

// What the report says of credentials that are not keys.
const (
	onlyKeys     = "Keygate checks API keys, and no other credential of Kong"
	keyForCaller = "give the caller a key: keygate keys create --owner"
)

// credentialName is what a report calls an entry of a section such as jwt_secrets.
func credentialName(section string) string {
	if section == "jwt_secrets" {
		return "jwt secret"
	}
	return strings.ReplaceAll(strings.TrimSuffix(section, "_credentials"), "_", "-") + " credential"
}

func (r *kongReader) group(n *document.Node, field string) *group {
	g := &group{entity: entity{at: r.at(n)}}
	for _, m := range r.mapping(n, field, "consumer_group") {
		f := field + "." + m.Name
		switch m.Name {
		case "plugins":
			readAll(r, m, f, &g.plugins, r.plugin)
			for _, p := range g.plugins {
				p.group = g
			}
		case "consumers":
			readAll(r, m, f, &g.consumers, r.ref)
		default:
			if !r.common(&g.entity, m, f) {
				g.odd = append(g.odd, m.Name)
			}
		}
	}
	return g
}

func (r *kongReader) credential(n *document.Node, field string) *credential {
	c := &credential{at: r.at(n)}
	for _, m := range r.mapping(n, field, "") {
		f := field + "." + m.Name
		switch m.Name {
		case "key":
			c.key = r.text(m, f)
		case "ttl":
			c.ttl = m.Kind != document.Null && m.Text != "0"
		case "consumer":
			c.consumerRef = r.ref(m, f)
		}
	}
	return c
}

// acl reads an entry of acls, of a consumer, or with a reference to one.
func (r *kongReader) acl(n *document.Node, field string, c *consumer) {
	entry := &membership{}
	for _, m := range r.mapping(n, field, "") {
		f := field + "." + m.Name
		switch m.Name {
		case "group":
			entry.group = r.text(m, f)
		case "consumer":
			entry.consumerRef = r.ref(m, f)
		}
	}
	if c != nil {
		c.groups = append(c.groups, entry.group)
		return
	}
	r.deck.acls = append(r.deck.acls, entry)
}

// others reports the objects of a section that has no counterpart.
func (r *kongReader) others(m *document.Node) {
	why, remedy := "Keygate has nothing like it", "see docs/from-kong.md"
	switch m.Name {
	case "certificates", "snis":
		why, remedy = "a certificate belongs to the server, not to a gateway", "give it to keygate serve with --tls-cert and --tls-key"
	case "ca_certificates":
		why, remedy = "a CA belongs to the upstream that it is for", "give it as ca of the upstream"
	case "vaults":
		why, remedy = "Keygate reads no vault", "give secrets as ${env:NAME} in the configuration files"
	case "licenses", "rbac_roles", "rbac_users", "workspaces", "admins":
		why, remedy = "it is about Kong's administrators", "give account-level keys with scopes: keygate keys create --level account"
	}
	object := strings.ReplaceAll(strings.TrimSuffix(m.Name, "s"), "_", " ")
	if isCredentials(m.Name) {
		object, why, remedy = credentialName(m.Name), onlyKeys, keyForCaller
	}
	if m.Kind != document.Sequence {
		r.deck.others = append(r.deck.others, other{r.at(m), short(object), why, remedy})
		return
	}
	for i := range m.Nodes {
		name := object
		for _, field := range []string{"name", "username", "id"} {
			if n := m.Nodes[i].Member(field); n != nil && n.Kind == document.String && !strings.HasSuffix(m.Name, "_credentials") {
				name += " " + n.Text
				break
			}
		}
		r.deck.others = append(r.deck.others, other{r.at(&m.Nodes[i]), short(name), why, remedy})
	}
}
