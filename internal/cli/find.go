package cli

import (
	"errors"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli/terminal"
	"github.com/keygate/keygate/internal/id"
)

// Wherever a command takes an identifier, it takes a name as well. The functions of this file find
// the identifier for a name.

// notFoundError reports that a name selects no record.
type notFoundError struct{ text string }

func (e *notFoundError) Error() string { return e.text }

// ambiguousError reports that a name selects several records.
type ambiguousError struct{ text string }

func (e *ambiguousError) Error() string { return e.text }

// match is a record that a name selects: its identifier, its name, and what else distinguishes it
// from others.
type match struct {
	id   string
	tell []string
}

// Bounds of a search.
const (
	maxCandidates = 10   // candidates that an error lists
	maxSearched   = 5000 // records read to find a name for which the server has no filter
	pageOfKeys    = 100  // keys read with one name
)

// isID reports whether s is an identifier. Identifiers are never looked up by name.
func isID(s string) bool {
	kind, _, _ := strings.Cut(s, "_")
	switch k := id.Kind(kind); k {
	case id.Account, id.Gateway, id.Key, id.Route, id.Webhook, id.Delivery, id.Event, id.Request, id.Revision, id.Owner, id.Plan, id.Grant, id.Issuer, id.Certificate:
		_, ok := id.Parse(k, s)
		return ok
	default:
		return false
	}
}

// named returns the identifier of the record of a list that has a name, or ref if that is an identifier.
func named[T any](noun, ref, remedy string, records iter.Seq2[T, error], matches func(*T) bool, describe func(*T) match) (string, error) {
	if isID(ref) {
		return ref, nil
	}
	found, err := search(noun, records, matches, describe)
	var refused *client.Error
	if errors.As(err, &refused) && refused.Status == http.StatusForbidden { // the call itself may be allowed
		return "", fmt.Errorf("%w, or the identifier of the %s instead of %q", err, noun, ref)
	}
	if err != nil {
		return "", err
	}
	return only(noun, ref, found, remedy)
}

// only returns the identifier of the only match.
func only(noun, ref string, found []match, remedy string) (string, error) {
	switch len(found) {
	case 0:
		return "", &notFoundError{fmt.Sprintf("there is no %s %q: %s", noun, ref, remedy)}
	case 1:
		return found[0].id, nil
	default:
		return "", &ambiguousError{fmt.Sprintf("%q is the name of several %ss: give an identifier instead\n%s", ref, noun, candidates(found))}
	}
}

// candidates lists matches, one on each line.
func candidates(found []match) string {
	var lines []string
	for _, m := range found {
		if len(lines) == maxCandidates {
			lines = append(lines, fmt.Sprintf("  and %d more", len(found)-maxCandidates))
			break
		}
		line := "  " + m.id
		for _, t := range m.tell {
			line += "  " + terminal.Clean(t)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// search returns the records of a list that have a name. It fails if the list has more than
// maxSearched records, since it would take too many calls.
func search[T any](noun string, records iter.Seq2[T, error], matches func(*T) bool, describe func(*T) match) (found []match, err error) {
	n := 0
	for r, err := range records {
		if err != nil {
			return nil, err
		}
		if n++; n > maxSearched {
			return nil, usagef("there are more than %d %ss, too many to look for a name: give an identifier", maxSearched, noun)
		}
		if matches(&r) {
			found = append(found, describe(&r))
		}
	}
	return found, nil
}

func gatewayMatch(g *client.Gateway) match { return match{g.GatewayID, []string{g.Name, g.Hostname}} }

func routeMatch(r *client.Route) match {
	return match{r.RouteID, []string{strings.Join(r.Methods, ",") + " " + r.Path}}
}

func webhookMatch(w *client.Webhook) match {
	return match{w.WebhookID, []string{w.URL, string(w.State)}}
}

func keyMatch(k *client.Key) match {
	m := match{k.KeyID, []string{k.Name, k.KeyPrefix, string(k.State), "created " + terminal.Relative(time.Until(k.CreatedAt))}}
	if k.RotatedTo != nil {
		m.tell = append(m.tell, "rotated to "+*k.RotatedTo)
	}
	return m
}

// gatewayID returns the identifier of the gateway with an identifier, name or hostname. For "" it
// is the default gateway of the command line.
func (a *app) gatewayID(api *client.Client, ref string) (string, error) {
	if ref == "" {
		return a.defaultGateway(api)
	}
	return named("gateway", ref, "keygate gateways list shows the names and hostnames", api.Gateways(a.Context, client.ListOptions{}),
		func(g *client.Gateway) bool { return g.Name == ref || strings.EqualFold(g.Hostname, ref) }, gatewayMatch)
}

// connectFor returns a client, and replaces the name of a gateway by its identifier, as gatewayID does.
func (a *app) connectFor(gateway *string) (*client.Client, error) {
	api, err := a.connect()
	if err != nil {
		return nil, err
	}
	*gateway, err = a.gatewayID(api, *gateway)
	return api, err
}

// defaultGateway returns the gateway of the environment, else of the context, else the only
// one.
func (a *app) defaultGateway(api *client.Client) (string, error) {
	if ref, _ := a.Env("KEYGATE_GATEWAY"); ref != "" {
		found, err := a.gatewayID(api, ref)
		if err != nil {
			return "", fmt.Errorf("KEYGATE_GATEWAY: %w", err)
		}
		return found, nil
	}
	used, err := a.access()
	if err != nil {
		return "", err
	}
	if used.Gateway != "" {
		return used.Gateway, nil
	}
	var found []match
	for g, err := range firstOf(maxCandidates+1, api.Gateways(a.Context, client.ListOptions{})) {
		if err != nil {
			return "", err
		}
		found = append(found, gatewayMatch(&g))
	}
	switch len(found) {
	case 0:
		return "", &notFoundError{"there is no gateway: create one with keygate gateways create"}
	case 1:
		return found[0].id, nil
	default:
		list := candidates(found[:min(len(found), maxCandidates)])
		if len(found) > maxCandidates {
			list += "\n  and more"
		}
		return "", usagef("--gateway is required, since there are several gateways:\n%s\nGive --gateway, set KEYGATE_GATEWAY, or run keygate context set --gateway NAME.", list)
	}
}

// routeID returns the identifier of the route of a gateway with an identifier, a path, or
// methods and a path such as "GET /orders".
func (a *app) routeID(api *client.Client, gatewayID, ref string) (string, error) {
	methods, path, ok := strings.Cut(ref, " ")
	if !ok {
		methods, path = "", ref
	}
	path = strings.TrimSpace(path)
	return named("route", ref, `give a path, or a method and a path such as "GET /orders"; keygate routes list shows them`,
		api.Routes(a.Context, gatewayID, client.ListOptions{}),
		func(r *client.Route) bool { return r.Path == path && hasMethods(r.Methods, methods) }, routeMatch)
}

// hasMethods reports whether a route has all of the methods in a list with commas.
func hasMethods(of []string, methods string) bool {
	if methods == "" {
		return true
	}
	for m := range strings.SplitSeq(methods, ",") {
		if !slices.ContainsFunc(of, func(one string) bool { return strings.EqualFold(one, m) }) {
			return false
		}
	}
	return true
}

// keyID returns the identifier of the key with an identifier, name or prefix. Of several keys it is
// the only one that is active and that no rotation replaces. The number of calls does not grow with the number of keys.
func (a *app) keyID(api *client.Client, ref string) (string, error) {
	if isID(ref) {
		return ref, nil
	}
	filter := client.KeyFilter{Name: ref}
	if prefix, ok := keyPrefix(ref); ok {
		ref, filter = prefix, client.KeyFilter{Query: prefix}
	}
	active, err := a.keysNamed(api, ref, filter, "active")
	if err != nil {
		return "", err
	}
	current := slices.DeleteFunc(slices.Clone(active), func(k client.Key) bool { return k.RotatedTo != nil })
	if len(current) == 1 && len(active) < pageOfKeys {
		return current[0].KeyID, nil
	}
	found, err := a.keysNamed(api, ref, filter, "")
	switch {
	case err != nil:
		return "", err
	case len(found) == 0:
		return "", &notFoundError{fmt.Sprintf("there is no key %q: give the whole name, or the prefix; keygate keys list -q TEXT finds names by a part", ref)}
	case len(found) == 1:
		return found[0].KeyID, nil
	}
	return "", severalKeys(ref, found)
}

// keysNamed returns the first keys in a state that have a name or prefix, newest first.
func (a *app) keysNamed(api *client.Client, ref string, filter client.KeyFilter, state string) (found []client.Key, err error) {
	filter.State = state
	for k, err := range firstOf(pageOfKeys, api.Keys(a.Context, filter)) {
		if err != nil {
			return nil, err
		}
		if k.Name == ref || k.KeyPrefix == ref {
			found = append(found, k)
		}
	}
	return found, nil
}

// severalKeys returns the error for a name or prefix of several keys, which lists them and says what to give instead.
func severalKeys(ref string, found []client.Key) error {
	shown := make([]match, min(len(found), maxCandidates))
	for i := range shown {
		shown[i] = keyMatch(&found[i])
	}
	list := candidates(shown)
	if more := len(found) - maxCandidates; more > 0 && len(found) < pageOfKeys {
		list += fmt.Sprintf("\n  and %d more", more)
	} else if more > 0 {
		list += "\n  and more"
	}
	what, remedy := "name", "a prefix or an identifier instead, such as "+found[0].KeyPrefix
	if found[0].KeyPrefix == ref {
		what, remedy = "prefix", "an identifier instead"
	}
	return &ambiguousError{fmt.Sprintf("%q is the %s of several keys: give %s\n%s", ref, what, remedy, list)}
}

// keyPrefix returns the prefix of a key if ref is a prefix or a whole key. A whole key is never
// sent to the server as a name.
func keyPrefix(ref string) (string, bool) {
	const random = 6 // characters of a prefix after its tag
	for _, tag := range []string{"kga_", "kgs_", "kg_"} {
		rest, ok := strings.CutPrefix(ref, tag)
		if ok && (len(rest) == random || len(rest) > 3*random) && strings.IndexFunc(rest, notAlphanumeric) < 0 {
			return tag + rest[:random], true
		}
	}
	return "", false
}

func notAlphanumeric(r rune) bool {
	return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
}

// webhookID returns the identifier of the endpoint with an identifier, URL or host.
func (a *app) webhookID(api *client.Client, ref string) (string, error) {
	whole := strings.Contains(ref, "://")
	return named("endpoint", ref, "keygate webhooks list shows the URLs", api.Webhooks(a.Context, client.ListOptions{}), func(w *client.Webhook) bool {
		if whole {
			return w.URL == ref
		}
		_, rest, _ := strings.Cut(w.URL, "://")
		host, _, _ := strings.Cut(rest, "/")
		name, _, _ := strings.Cut(host, ":")
		return strings.EqualFold(host, ref) || strings.EqualFold(name, ref)
	}, webhookMatch)
}

// records are the records that the filters of a command name. A filter that is not given is "".
type records struct{ gateway, route, key, actor, plan *string }

// identify replaces the names in r by identifiers. No filter has a default.
func (a *app) identify(api *client.Client, r records) (err error) {
	if given := r.gateway; given != nil && *given != "" {
		if *given, err = a.gatewayID(api, *given); err != nil {
			return err
		}
	}
	if given := r.plan; given != nil && *given != "" {
		if *given, err = a.planID(api, *given); err != nil {
			return err
		}
	}
	for _, key := range []*string{r.key, r.actor} {
		if key == nil || *key == "" {
			continue
		}
		if *key, err = a.keyID(api, *key); err != nil {
			return err
		}
	}
	if r.route == nil || *r.route == "" || isID(*r.route) {
		return nil
	}
	// A path says nothing without its gateway.
	of, err := a.gatewayID(api, *r.gateway)
	if err != nil {
		return err
	}
	*r.route, err = a.routeID(api, of, *r.route)
	return err
}
