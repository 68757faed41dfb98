package moving

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"time"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/calendar"
	"github.com/keygate/keygate/internal/document"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/label"
	"github.com/keygate/keygate/internal/owner"
	"github.com/keygate/keygate/internal/plan"
	"github.com/keygate/keygate/internal/ratelimit"
)

// maxPlans is the maximum number of plans that an import of keys makes.
const maxPlans = 100

// maxPages is the maximum number of pages of a file.
const maxPages = 100_000

// UnkeyConfig says how keys of Unkey are imported.
type UnkeyConfig struct {
	Now time.Time
	// Scope is the scope that every key gets. If it is "", a key gets admin, which allows every method, and one that has
	// permissions or roles is left out.
	Scope string
}

// unkey turns keys of Unkey into keys of Keygate.
type unkey struct {
	report
	cfg   UnkeyConfig
	name  string
	keys  []Key
	plans plan.File
	known map[string]string // names of plans by their content
	seen  map[string]bool   // digests
	line  int32             // lines before the value that is read
}

// Unkey turns a file with pages of Unkey's listKeys, of its API v1 or v2, into keys. The file has a page, a list of pages, or
// pages one after the other. name is what the report calls it. The error is a validation error with the line of what is
// wrong.
func Unkey(cfg UnkeyConfig, name string, content []byte) (*Result, error) {
	if cfg.Scope != "" {
		if _, err := apikey.ParseScopes(cfg.Scope); err != nil {
			return nil, err
		}
	}
	u := &unkey{cfg: cfg, name: name, known: map[string]string{}, seen: map[string]bool{}}
	if len(content) > MaxFile {
		return nil, tooLarge()
	}
	values, err := jsonValues(content)
	if err != nil {
		return nil, err
	}
	var problems document.Problems
	for _, v := range values {
		u.line = v.line
		problems.Add(u.page(v.node, ""))
	}
	if err := problems.Err(); err != nil {
		return nil, err
	}
	if len(u.keys) > maxKeys {
		return nil, fault.Invalid("", "the file has more than %d keys: import them in parts", maxKeys)
	}
	r := &Result{Keys: u.keys, Report: u.sorted([]string{name})}
	if len(u.plans.Plans) > 0 {
		r.Files = []File{{"plans.yaml", u.plans.Encode()}}
	}
	return r, nil
}

// jsonValue is a value of a file.
type jsonValue struct {
	node *document.Node
	line int32 // lines before it
}

// jsonValues returns the JSON values of a file, one after the other.
func jsonValues(content []byte) (list []jsonValue, err error) {
	content = document.TrimMark(content)
	d := json.NewDecoder(bytes.NewReader(content))
	from, line := 0, int32(0) // where the last value begins, and the lines before it
	for {
		var raw json.RawMessage
		if err := d.Decode(&raw); errors.Is(err, io.EOF) && len(list) > 0 {
			return list, nil
		} else if err != nil {
			_, err = document.Parse(content) // says where
			if err == nil {
				err = document.Position{Line: 1, Column: 1}.Invalid("", "must be JSON, as listKeys responds")
			}
			return nil, err
		}
		start := int(d.InputOffset()) - len(raw)
		line += document.PositionOf(string(content[from:start]), start-from).Line - 1
		from = start
		n, err := document.Parse(raw)
		if err != nil { // again, so that its position is that of the file
			_, err = document.Parse(append(bytes.Repeat([]byte("\n"), int(line)), raw...))
			return nil, err
		}
		if list = append(list, jsonValue{n, line}); len(list) > maxPages {
			return nil, fault.Invalid("", "the file has more than %d pages: import them in parts", maxPages)
		}
	}
}

// page reads a page, or a list of pages.
func (u *unkey) page(n *document.Node, field string) error {
	if n.Kind == document.Sequence {
		var problems document.Problems
		for i := range n.Nodes {
			problems.Add(u.page(&n.Nodes[i], fmt.Sprintf("%s[%d]", field, i)))
		}
		return problems.Err()
	}
	keys := n.Member("keys") // v1
	if keys == nil {
		keys = n.Member("data")
	}
	if keys == nil || keys.Kind != document.Sequence {
		at := n.Position
		at.Line += u.line
		return at.Invalid(field, "must be a page of listKeys, which has the list keys (v1) or data (v2)")
	}
	var problems document.Problems
	for i := range keys.Nodes {
		if k := &keys.Nodes[i]; k.Kind == document.Mapping {
			u.key(k)
		} else {
			at := k.Position
			at.Line += u.line
			problems.Add(at.Invalid(fmt.Sprintf("%s[%d]", keys.Name, i), "must be a key, not %s", k.Kind))
		}
	}
	if more := n.Member("pagination"); more != nil && more.Member("hasMore") != nil && more.Member("hasMore").Text == "true" || n.Member("cursor") != nil && n.Member("cursor").Kind == document.String {
		u.cursor(n)
	}
	return problems.Err()
}

// cursor notes that there may be more pages than the file has.
func (u *unkey) cursor(n *document.Node) {
	u.add(at{u.name, int(n.Line + u.line)}, "page", Changed, "there may be more keys behind its cursor: look whether the file has the next page, too", "")
}

// member returns the text of a member; "" if there is none.
func member(n *document.Node, path ...string) string {
	for _, name := range path {
		if n = n.Member(name); n == nil {
			return ""
		}
	}
	if n.Kind == document.Null || n.Kind == document.Mapping || n.Kind == document.Sequence {
		return ""
	}
	return n.Text
}

// key reads a key.
func (u *unkey) key(n *document.Node) {
	id := cmp.Or(member(n, "keyId"), member(n, "id"))
	p := at{u.name, int(n.Line + u.line)}
	object := "key " + short(cmp.Or(id, member(n, "start"), "without keyId"))
	k := Key{Scope: cmp.Or(u.cfg.Scope, "admin"), KeyPrefix: member(n, "start")}
	if k.KeyPrefix = k.KeyPrefix[:min(len(k.KeyPrefix), apikey.MaxImportedPrefix)]; strings.ContainsFunc(k.KeyPrefix, func(r rune) bool { return r <= ' ' || r > 0x7e }) {
		k.KeyPrefix = ""
	}
	l := u.secret(n, &k)
	permissions := n.Member("permissions")
	roles := n.Member("roles")
	hasRights := permissions != nil && !isEmpty(permissions) || roles != nil && !isEmpty(roles)
	expires, badTime := u.time(n, "expires")
	externalID := cmp.Or(member(n, "identity", "externalId"), member(n, "ownerId"))
	switch {
	case member(n, "enabled") == "false":
		l = reason{"it is disabled", "nothing to do"}
	case l.why != "":
	case hasRights && u.cfg.Scope == "":
		l = reason{"it has permissions or roles, which are no scopes", "import again with --scope, which every key then gets"}
	case badTime:
		l = reason{"its expiry is not a time in milliseconds", "give its caller a key: keygate keys create --expires"}
	case !expires.IsZero() && !expires.After(u.cfg.Now):
		l = reason{"it has expired", "nothing to do"}
	case externalID != "" && owner.CheckExternalID("owner", externalID) != nil:
		l = reason{fmt.Sprintf("the ID of an owner has at most %d printable ASCII characters, and no spaces at either end", owner.MaxExternalID), "give its caller a key: keygate keys create"}
	case u.seen[k.SHA256]:
		l = reason{"the file has it twice", "nothing to do"}
	}
	if l.why == "" {
		k.Plan, l = u.credits(n)
	}
	if l.why != "" {
		u.left(p, object, l.why, l.remedy)
		return
	}
	u.seen[k.SHA256] = true
	k.Owner = externalID
	k.Name = cmp.Or(member(n, "name"), externalID, id, "unkey")
	if label.CheckName("name", k.Name) != nil {
		k.Name = cmp.Or(id, "unkey")
	}
	if !expires.IsZero() {
		k.ExpiresAt = expires.Format(time.RFC3339)
	}
	if used, _ := u.time(n, "lastUsedAt"); !used.IsZero() {
		k.LastUsedAt = used.Format(time.RFC3339)
	}
	before := len(u.lines)
	if hasRights {
		u.changed(p, object, "its permissions and roles are the scope %s", k.Scope)
	}
	if k.Plan != "" {
		u.changed(p, object, "its credits are a quota of the plan %s, which begins anew", k.Plan)
	}
	u.limit(n, p, object, &k)
	u.metadata(n, p, object, &k)
	if len(u.lines) == before {
		u.carried(p, object)
	}
	u.keys = append(u.keys, k)
}

// secret sets the digest of a key.
func (u *unkey) secret(n *document.Node, k *Key) reason {
	if text := member(n, "plaintext"); text != "" {
		digest := sha256.Sum256([]byte(text))
		k.SHA256 = hex.EncodeToString(digest[:])
		return keyProblem(text)
	}
	hash := cmp.Or(member(n, "hash"), member(n, "hash", "value"))
	if hash == "" {
		return reason{"the page does not have it", "list recoverable keys with decrypt: true, ask Unkey for the hashes of the others, or give the caller a key: keygate keys create"}
	}
	digest, err := apikey.ParseDigest("hash", hash)
	if err != nil {
		return reason{"its hash is not a SHA-256 in hexadecimal digits or base64", "give its caller a key: keygate keys create"}
	}
	k.SHA256 = hex.EncodeToString(digest[:])
	return reason{}
}

// time reads a time in milliseconds since 1970; zero for none.
func (u *unkey) time(n *document.Node, name string) (t time.Time, bad bool) {
	text := member(n, name)
	if text == "" || text == "0" {
		return t, false
	}
	ms, ok := document.Integer(text)
	if t = time.UnixMilli(ms).UTC(); !ok || ms < 0 || t.Year() > 9999 {
		return time.Time{}, true
	}
	return t, false
}

// credits returns the name of a plan with the quota that a key's credits are; "" if it has none.
func (u *unkey) credits(n *document.Node) (name string, l reason) {
	remaining := cmp.Or(member(n, "remaining"), member(n, "credits", "remaining"))
	if remaining == "" {
		return "", reason{}
	}
	q := plan.Quota{Unit: calendar.Total}
	var ok bool
	q.Count, ok = document.Integer(remaining)
	day := plan.DefaultAnchor
	refill := n.Member("refill")
	if refill == nil && n.Member("credits") != nil {
		refill = n.Member("credits").Member("refill")
	}
	if refill != nil && refill.Kind == document.Mapping {
		if q.Count, ok = document.Integer(member(refill, "amount")); member(refill, "interval") == "daily" {
			q.Unit = calendar.Day
		} else if q.Unit = calendar.Month; member(refill, "interval") != "monthly" {
			ok = false
		}
		if d, is := document.Integer(member(refill, "refillDay")); is && d >= 1 {
			day = int(min(d, 28))
		}
	}
	if !ok || q.Count < 1 || q.Count > ratelimit.MaxUnits {
		return "", reason{"it has no credits left, or such that no quota says them", "give its caller a key with a plan: keygate keys create --plan"}
	}
	one := plan.FilePlan{Plan: plan.Plan{TimeZone: plan.DefaultZone, AnchorDay: day}, Gateways: []string{""}}
	one.Limits = []plan.Limit{{Name: "credits", Quota: q, Per: plan.PerKey}}
	key := fmt.Sprint(q, day)
	if u.known[key] == "" {
		if len(u.known) == maxPlans {
			return "", reason{fmt.Sprintf("the keys have more than %d different numbers of credits", maxPlans), "give its caller a key with a plan: keygate keys create --plan"}
		}
		one.Name = strings.ReplaceAll("unkey-"+q.String(), "/", "-")
		if day != plan.DefaultAnchor {
			one.Name += fmt.Sprintf("-from-%d", day)
		}
		u.known[key] = one.Name
		u.plans.Plans = append(u.plans.Plans, one)
	}
	return u.known[key], reason{}
}

// limit sets the rate limit of a key.
func (u *unkey) limit(n *document.Node, p at, object string, k *Key) {
	var limits []*document.Node
	if one := n.Member("ratelimit"); one != nil && one.Kind == document.Mapping {
		limits = append(limits, one)
	}
	if more := n.Member("ratelimits"); more != nil && more.Kind == document.Sequence {
		for i := range more.Nodes {
			one := &more.Nodes[i]
			if member(one, "autoApply") == "false" {
				u.changed(p, object, "its limit %s, which holds only where it is named, is not carried: set a limit of routes", short(member(one, "name")))
				continue
			}
			limits = append(limits, one)
		}
	}
	for _, one := range limits {
		count, _ := document.Integer(cmp.Or(member(one, "limit"), member(one, "refillRate")))
		ms, _ := document.Integer(cmp.Or(member(one, "duration"), member(one, "refillInterval")))
		w := window{count: count, seconds: ms / 1000}
		sustained, burst, ok := "", "", false
		if ms > 0 && ms%1000 == 0 {
			sustained, burst, ok = w.rate()
		}
		switch {
		case !ok:
			u.changed(p, object, "its limit of %d in %d ms is not carried: no rate says it", count, ms)
		case k.RateLimit != nil:
			u.changed(p, object, "its limit of %d in %d ms is not carried, since a key has one: set a plan", count, ms)
		default:
			k.RateLimit = &KeyLimit{sustained, burst}
			u.changed(p, object, "its limit is a token bucket, which refills evenly")
		}
	}
}

// metadata sets the texts of a key's meta.
func (u *unkey) metadata(n *document.Node, p at, object string, k *Key) {
	meta := n.Member("meta")
	if meta == nil || meta.Kind != document.Mapping || len(meta.Nodes) == 0 {
		return
	}
	odd := false
	for i := range meta.Nodes {
		m := &meta.Nodes[i]
		longer := maps.Clone(k.Metadata)
		if longer == nil {
			longer = map[string]string{}
		}
		longer[m.Name] = m.Text
		if m.Kind == document.Null || m.Kind == document.Sequence || m.Kind == document.Mapping || label.CheckMetadata("metadata", longer) != nil {
			odd = true
			continue
		}
		k.Metadata = longer
	}
	if odd {
		u.changed(p, object, "some of its meta is no metadata, which is up to 16 short texts")
	}
}
