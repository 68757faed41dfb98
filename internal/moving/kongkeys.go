package moving

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/label"
)

// keyBuilder makes the keys.
type keyBuilder struct {
	*kong
	scopeOf map[*consumer]string // "" for a consumer whose keys reach nothing
}

// allowed reports whether acl lets a consumer use a route.
func (k *kong) allowed(s *examined, c *consumer) bool {
	p := s.acl
	if p == nil {
		return true
	}
	groups := slices.Clone(c.groups)
	if n := p.get("include_consumer_groups"); n != nil && n.Text == "true" {
		for _, g := range k.memberOf[c] {
			groups = append(groups, g.name)
		}
	}
	has := func(names []string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return slices.Contains(groups, n) })
	}
	allow := append(textsOf(p.get("allow")), textsOf(p.get("whitelist"))...)
	deny := append(textsOf(p.get("deny")), textsOf(p.get("blacklist"))...)
	if len(deny) > 0 && has(deny) {
		return false
	}
	return len(allow) == 0 || has(allow)
}

// scopes sets the scopes of all consumers. If those of one cannot say which routes it may use, a route is left out, and
// returned: the tables must be made again.
func (b *keyBuilder) scopes() (conflict *examined) {
	b.scopeOf = map[*consumer]string{}
	known := map[string]string{} // by the groups of a consumer, which decide alone
	for _, c := range b.consumers {
		if len(c.keys) == 0 {
			continue
		}
		groups := slices.Clone(c.groups)
		for _, g := range b.memberOf[c] {
			groups = append(groups, "group "+g.name)
		}
		slices.Sort(groups)
		all := fmt.Sprintf("%q", groups)
		if scope, ok := known[all]; ok {
			b.scopeOf[c] = scope
			continue
		}
		scope, conflict := b.scope(c)
		if conflict != nil {
			conflict.reason = reason{
				fmt.Sprintf("acl lets consumer %s use some routes and not this one, and scopes of keys cannot say so", short(c.label())),
				"give the routes of each group paths of their own, such as /admin/…, or add the route with a key of one gateway",
			}
			return conflict
		}
		b.scopeOf[c], known[all] = scope, scope
	}
	return nil
}

// scope returns the scope of the keys of a consumer, or a route that it may not use and that its scopes would allow.
func (b *keyBuilder) scope(c *consumer) (string, *examined) {
	var may, mayNot []*entry
	for _, g := range b.gateways {
		for _, e := range g.entries {
			switch {
			case e.of == nil || e.of.access != keyed:
			case b.allowed(e.of, c):
				may = append(may, e)
			default:
				mayNot = append(mayNot, e)
			}
		}
	}
	switch {
	case len(may) == 0:
		return "", nil
	case len(mayNot) == 0:
		return "admin", nil
	}
	var resources []string
	for _, e := range may {
		if !e.main {
			continue // /orders-old of the prefix /orders: such keys do not have it
		}
		var parts []string
		for _, s := range e.pattern {
			if s.kind != literalPiece || s.pre == "" {
				break
			}
			parts = append(parts, s.pre)
		}
		resource := strings.Join(parts, "/")
		if resource == "" {
			return "", mayNot[0].of
		}
		exact := literals(resource)
		for _, f := range mayNot {
			if f.pattern.meets(exact) || f.pattern.meets(with(exact, piece{kind: wildPiece})) {
				return "", f.of
			}
		}
		resources = append(resources, resource)
	}
	slices.Sort(resources)
	resources = slices.Compact(resources)
	var scopes []string
	for _, r := range resources {
		if !slices.ContainsFunc(resources, func(o string) bool { return strings.HasPrefix(r, o+"/") }) {
			scopes = append(scopes, "admin:"+r)
		}
	}
	text := strings.Join(scopes, " ")
	if _, err := apikey.ParseScopes(text); err != nil {
		return "", mayNot[0].of
	}
	return text, nil
}

// build returns the keys of all consumers.
func (b *keyBuilder) build() (keys []Key, err error) {
	seen := map[[sha256.Size]byte]bool{}
	for _, c := range b.consumers {
		object := "consumer " + short(c.label())
		owner, why := ownerOf(c)
		barred := b.barred(c)
		restricts, lists, _ := b.callerLists(c)
		switch {
		case why != "":
			b.left(c.at, object, why, "give its callers keys: keygate keys create")
			continue
		case barred != nil:
			b.left(c.at, object, "it has the plugin "+short(barred.name), "give its callers keys: keygate keys create")
			continue
		case len(c.keys) == 0:
			b.left(c.at, object, "it has no key of key-auth", "give its callers keys: keygate keys create --owner")
			continue
		case b.scopeOf[c] == "":
			b.left(c.at, object, "no route that is carried takes its keys", "nothing to do")
			continue
		}
		if scope := b.scopeOf[c]; scope != "admin" {
			b.changed(c.at, object, "its groups are the scope %s", short(scope))
		} else if !b.has(c.at, object) {
			b.carried(c.at, object)
		}
		if len(c.odd) > 0 {
			b.left(c.at, object, "Keygate does not know its "+short(strings.Join(c.odd, ", ")), "look whether that matters")
		}
		made := 0
		for i, one := range c.keys {
			name := fmt.Sprintf("key %d of consumer %s", i+1, short(c.label()))
			digest := sha256.Sum256([]byte(one.key))
			if l := keyProblem(one.key); l.why != "" {
				b.left(one.at, name, l.why, l.remedy)
				continue
			}
			switch {
			case one.ttl:
				b.left(one.at, name, "it expires, and the file does not say when (ttl)", "give its caller a key: keygate keys create --expires")
				continue
			case seen[digest]:
				b.left(one.at, name, "the files have it twice", "give one of the callers another key")
				continue
			}
			seen[digest] = true
			if restricts != nil {
				restricts.used = true
			}
			b.carried(one.at, name)
			k := Key{SHA256: hex.EncodeToString(digest[:]), Name: owner, Scope: b.scopeOf[c], Owner: owner, Plan: b.plans.of[c]}
			if made++; made > 1 {
				k.Name = fmt.Sprintf("%s (%d)", owner, made)
			}
			k.AllowIPs, k.DenyIPs = lists.Allow, lists.Deny
			if own := map[string]string{"custom_id": c.customID}; c.customID != "" && c.customID != owner && label.CheckMetadata("metadata", own) == nil {
				k.Metadata = own
			}
			if keys = append(keys, k); len(keys) > maxKeys {
				return nil, fault.Invalid("", "the files have more than %d keys: import them in parts", maxKeys)
			}
		}
	}
	return keys, nil
}

// keyProblem says why a key cannot be carried.
func keyProblem(key string) reason {
	printable := true
	for i := range len(key) {
		printable = printable && key[i] > ' ' && key[i] < 0x7f
	}
	switch {
	case key == "":
		return reason{"the file does not have it", "write it into the file, or give the caller a key: keygate keys create"}
	case isReference(key):
		return reason{"it stands for a key that is not in the file", "write it into the file and import again"}
	case !printable || len(key) > apikey.MaxImported:
		return reason{fmt.Sprintf("a key has %d to %d printable ASCII characters, and no spaces", apikey.MinImported, apikey.MaxImported), "give the caller a key: keygate keys create"}
	case len(key) < apikey.MinImported:
		return reason{fmt.Sprintf("it has fewer than %d characters, so that it could be guessed", apikey.MinImported), "give the caller a key: keygate keys create"}
	case apikey.HasTag(key):
		return reason{"it has the form of Keygate's own keys", "give the caller a key: keygate keys create"}
	}
	return reason{}
}

// ownerOf returns the owner of the keys of a consumer.
func ownerOf(c *consumer) (owner, why string) {
	if owner = c.name; owner == "" {
		owner = c.customID
	}
	switch {
	case owner == "":
		return "", "it has neither username nor custom_id"
	case isReference(owner):
		return "", "its name is not in the file"
	case label.CheckName("name", owner) != nil || len(owner) > 250 || strings.ContainsFunc(owner, func(r rune) bool { return r < 0x20 || r > 0x7e }):
		return "", "the ID of an owner has at most 250 printable ASCII characters"
	}
	return owner, ""
}
