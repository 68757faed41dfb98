package cli

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli/terminal"
	"github.com/keygate/keygate/internal/gateway"
)

// handlingFlags are the flags of what a route does with its requests beside forwarding them as they came.
type handlingFlags struct {
	stripPrefix, redirect string
	validate              string
	keepPath, keepQuery   bool
	respond               string // file
	responds              *client.RespondInput
	addresses             addressFlags
}

// The flags with the headers that a route sets and removes, which are those of gateways.
const (
	requestHeaderFlag  = "request-header"
	responseHeaderFlag = "response-header"
	removeFlag         = "remove-" // before each of the two
)

// handlingNames are the flags that change a route by themselves.
func handlingNames() []string {
	return []string{"strip-prefix", "redirect", "respond", allowFlag, denyFlag, requestHeaderFlag, removeFlag + requestHeaderFlag, responseHeaderFlag, removeFlag + responseHeaderFlag, "validate"}
}

// add adds the flags. removes ends the usage of a flag whose empty value removes what it says.
func (o *handlingFlags) add(f *pflag.FlagSet, removes string) {
	f.StringVar(&o.stripPrefix, "strip-prefix", "", "beginning of the path, such as `/api`, that the upstream does not get"+removes)
	f.StringVar(&o.redirect, "redirect", "", "`status and target` of a redirect in place of forwarding, as in '308 https://example.com'"+removes)
	f.BoolVar(&o.keepPath, "redirect-keep-path", false, "append the path of the request to the target of --redirect")
	f.BoolVar(&o.keepQuery, "redirect-keep-query", false, "append the query of the request to the target of --redirect")
	f.StringVar(&o.respond, "respond", "", "`file` with a response in place of forwarding, in YAML or JSON: status, content_type, body and headers; or - for standard input"+removes)
	f.StringVar(&o.validate, "validate", "", "`mode` in which requests are held against the OpenAPI document: off, report or enforce (default: as the gateway says)"+removes)
	o.addresses.add(f, "the route")
	for flag, what := range map[string]string{requestHeaderFlag: "the requests that upstreams get", responseHeaderFlag: "the responses of upstreams"} {
		f.StringArray(flag, nil, "header to set on "+what+", as `NAME=VALUE`, in place of what the gateway does with it; may be repeated"+removes)
		f.StringSlice(removeFlag+flag, nil, "`name` of a header to remove from "+what+"; may be repeated"+removes)
	}
}

// read checks the flags, and reads the file of --respond, if one was given.
func (o *handlingFlags) read(a *app) error {
	if o.redirect == "" && (o.keepPath || o.keepQuery) {
		return usagef("--redirect-keep-path and --redirect-keep-query need --redirect")
	}
	if _, err := o.redirectInput(); err != nil || o.respond == "" {
		return err
	}
	r, err := readPart(a, o.respond, gateway.ParseRespond)
	if err != nil {
		return err
	}
	o.responds = &client.RespondInput{Status: r.Status, ContentType: given(r.ContentType), Body: given(r.Body)}
	if r.Headers != nil {
		o.responds.Headers = &r.Headers
	}
	return nil
}

// redirectInput returns the redirect of the flags, or nil.
func (o *handlingFlags) redirectInput() (*client.RedirectInput, error) {
	if o.redirect == "" {
		return nil, nil
	}
	text, to, ok := strings.Cut(o.redirect, " ")
	status, err := strconv.ParseInt(text, 10, 64)
	if to = strings.TrimSpace(to); err != nil || !ok || to == "" {
		return nil, usagef("--redirect %q must be a status and a target, as in '308 https://example.com'", o.redirect)
	}
	in := &client.RedirectInput{To: to, Status: status}
	if o.keepPath {
		in.KeepPath = new(true)
	}
	if o.keepQuery {
		in.KeepQuery = new(true)
	}
	return in, nil
}

// create sets what the flags say in a creation.
func (o *handlingFlags) create(c *cobra.Command, in *client.CreateRouteRequest) error {
	requests, responses, err := headerRulesGiven(c.Flags())
	if err != nil {
		return err
	}
	in.RequestHeaders, in.ResponseHeaders = requests, responses
	in.StripPrefix, in.Respond = given(o.stripPrefix), o.responds
	if o.validate != "" {
		in.Validate = new(client.CreateRouteRequestValidate(o.validate))
	}
	in.Redirect, err = o.redirectInput()
	in.AllowIps, in.DenyIps = o.addresses.given()
	return err
}

// change sets what the flags say in a change.
func (o *handlingFlags) change(c *cobra.Command, p *client.RoutePatch) error {
	p.StripPrefix = changesOf(c).text("strip-prefix", o.stripPrefix)
	p.Validate = changesOf(c).text("validate", o.validate)
	p.AllowIps, p.DenyIps = o.addresses.changes(c.Flags())
	requests, responses, err := headerRulesGiven(c.Flags())
	if err != nil {
		return err
	}
	p.RequestHeaders, p.ResponseHeaders = headerRulesChange(c, requestHeaderFlag, requests), headerRulesChange(c, responseHeaderFlag, responses)
	redirect, err := o.redirectInput()
	p.Redirect, p.Respond = changeOf(c, "redirect", redirect), changeOf(c, "respond", o.responds)
	return err
}

// changeOf returns the change to the value of a flag: nil removes it.
func changeOf[T any](c *cobra.Command, flag string, value *T) client.Change[T] {
	switch {
	case !c.Flags().Changed(flag):
		return client.Change[T]{}
	case value == nil:
		return client.Clear[T]()
	}
	return client.Set(*value)
}

// handlingFields returns a line for each thing that a route does beside forwarding.
func handlingFields(r *client.Route) (fields []terminal.Field) {
	if r.StripPrefix != nil {
		fields = append(fields, terminal.Field{"STRIP PREFIX", *r.StripPrefix})
	}
	if d := r.Redirect; d != nil {
		text := fmt.Sprintf("%d %s", d.Status, d.To)
		if d.KeepPath {
			text += ", with the path"
		}
		if d.KeepQuery {
			text += ", with the query"
		}
		fields = append(fields, terminal.Field{"REDIRECT", text})
	}
	if d := r.Respond; d != nil {
		text := strconv.FormatInt(d.Status, 10)
		if d.ContentType != nil {
			text += fmt.Sprintf(", %d bytes of %s", len(d.Body), *d.ContentType)
		}
		if len(d.Headers) > 0 {
			text += fmt.Sprintf(", headers %s", strings.Join(slices.Sorted(maps.Keys(d.Headers)), ", "))
		}
		fields = append(fields, terminal.Field{"RESPOND", text})
	}
	if r.Validate != nil {
		fields = append(fields, terminal.Field{"VALIDATE", string(*r.Validate)})
	}
	if r.RequestHeaders != nil {
		fields = append(fields, terminal.Field{"REQUEST HEADERS", headerRulesText(*r.RequestHeaders)})
	}
	if r.ResponseHeaders != nil {
		fields = append(fields, terminal.Field{"RESPONSE HEADERS", headerRulesText(*r.ResponseHeaders)})
	}
	return append(fields, addressFields(r.AllowIps, r.DenyIps)...)
}
