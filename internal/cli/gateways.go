package cli

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli/terminal"
)

func newGateways(a *app) *cobra.Command {
	return newGroup("gateways", "Manage gateways",
		newGatewaysCreate(a), newGatewaysList(a), newGatewaysGet(a), newGatewaysUpdate(a), newGatewaysDelete(a))
}

// gatewayFlags are the flags that create and update share.
type gatewayFlags struct {
	name, upstreamURL, hostname, limit, burst, timeout, ca string
	headers                                                []string
	headersFile                                            string
	origins, corsMethods, corsHeaders                      []string
	corsMaxAge                                             int64
	maxBody                                                int64
	keyHeaders                                             []string
	encodedSlashes, cutStreams                             bool
	isDefault                                              bool
	connection                                             connectionFlags
}

func (g *gatewayFlags) register(f *pflag.FlagSet) {
	f.StringVar(&g.name, "name", "", "display `name`")
	f.StringVar(&g.upstreamURL, "upstream-url", "", "base `URL` of the upstream service: http, https or h2c")
	f.StringVar(&g.hostname, "hostname", "", "`host` name of the gateway (default: generated from its identifier)")
	f.StringVar(&g.limit, "global-rate-limit", "", "`rate` limit across all routes, such as 6000/min")
	f.StringVar(&g.burst, "global-burst", "", "capacity of the global limit, such as `200/s`")
	f.StringVar(&g.timeout, "timeout", "", "timeout for the upstream's response headers, as a `duration` such as 30s")
	f.StringVar(&g.ca, "upstream-ca", "", "`file` of PEM certificates that replace the system's roots for this upstream")
	f.StringArrayVar(&g.headers, "upstream-header", nil, "header to set on every forwarded request, as `NAME=VALUE`; may be repeated")
	f.StringVar(&g.headersFile, "upstream-headers-file", "", "`file` with such headers, one NAME=VALUE per line, or - for standard input; keeps secrets out of the process list")
	f.StringArrayVar(&g.origins, "cors-origin", nil, "`origin` from which browsers may call; may be repeated")
	f.StringSliceVar(&g.corsMethods, "cors-method", nil, "`method` that CORS requests may use; may be repeated")
	f.StringSliceVar(&g.corsHeaders, "cors-header", nil, "request `header` that CORS requests may set; may be repeated")
	f.Int64Var(&g.corsMaxAge, "cors-max-age", 0, "`seconds` for which browsers may cache a preflight response")
	f.Int64Var(&g.maxBody, "max-body-bytes", 0, "maximum size of a request body in `bytes`; 0 means unlimited")
	f.StringSliceVar(&g.keyHeaders, "key-header", nil, "request `header` that may hold the key, such as X-API-Key (default Authorization); may be repeated")
	f.BoolVar(&g.encodedSlashes, "allow-encoded-slashes", false, "treat %2F in a path as a part of its segment")
	f.BoolVar(&g.cutStreams, "cut-streams", true, "end upgrades, streams and long bodies within 1 s when their key is revoked, expires or no longer allows them")
	f.BoolVar(&g.isDefault, "default", false, "make it the default gateway, which unknown hosts reach, in place of the present one")
	g.connection.register(f)
}

func (g *gatewayFlags) globalLimit() (*client.GlobalLimitInput, error) {
	switch {
	case g.limit != "":
		return &client.GlobalLimitInput{Sustained: g.limit, Burst: given(g.burst)}, nil
	case g.burst != "":
		return nil, usagef("--global-burst needs --global-rate-limit")
	default:
		return nil, nil
	}
}

func (g *gatewayFlags) cors() (*client.CorsInput, error) {
	if strings.Join(g.origins, "") == "" {
		if len(g.corsMethods)+len(g.corsHeaders) > 0 || g.corsMaxAge != 0 {
			return nil, usagef("--cors-method, --cors-header and --cors-max-age need --cors-origin")
		}
		return nil, nil
	}
	in := &client.CorsInput{Origins: g.origins}
	if len(g.corsMethods) > 0 {
		in.Methods = &g.corsMethods
	}
	if len(g.corsHeaders) > 0 {
		in.Headers = &g.corsHeaders
	}
	if g.corsMaxAge != 0 {
		in.MaxAge = &g.corsMaxAge
	}
	return in, nil
}

// upstreamHeaders returns the headers given by flag and file; nil if there are none.
func (g *gatewayFlags) upstreamHeaders(a *app) (map[string]string, error) {
	lines := g.headers
	if g.headersFile != "" {
		content, err := a.ReadInput(g.headersFile)
		if err != nil {
			return nil, fmt.Errorf("read the upstream headers: %w", err)
		}
		for line := range strings.Lines(string(content)) {
			if line = strings.TrimSpace(line); line != "" {
				lines = append(lines, line)
			}
		}
	}
	if strings.Join(lines, "") == "" {
		return nil, nil
	}
	return pairs("upstream-header", lines)
}

func (g *gatewayFlags) upstreamCA() (string, error) {
	if g.ca == "" {
		return "", nil
	}
	return readText(g.ca)
}

type gatewaysCreate struct {
	*app
	gatewayFlags
	spec    string
	refRoot string
}

func newGatewaysCreate(a *app) *cobra.Command {
	o := &gatewaysCreate{app: a}
	c := &cobra.Command{
		Use:     "create --name NAME --upstream-url URL",
		Short:   "Create a gateway in front of a service",
		Example: "  keygate gateways create --name orders --upstream-url https://orders.internal --spec openapi.yaml",
		Args:    noArgs,
		RunE:    o.run,
	}
	o.register(c.Flags())
	c.Flags().StringVar(&o.spec, "spec", "", "`file` with the OpenAPI document to create the routes from, or - for standard input")
	refRootFlag(c.Flags(), &o.refRoot)
	return c
}

func (o *gatewaysCreate) run(c *cobra.Command, _ []string) error {
	if err := errors.Join(required("name", o.name), required("upstream-url", o.upstreamURL)); err != nil {
		return usagef("%s", err)
	}
	if err := noneEmpty(c); err != nil {
		return err
	}
	in, err := o.request(c)
	if err != nil {
		return err
	}
	var spec *documentFile
	if o.spec != "" {
		if spec, err = o.readSpec(o.spec, o.refRoot); err != nil {
			return err
		}
		text := string(spec.content)
		in.Spec = &text
	}
	api, err := o.connect()
	if err != nil {
		return err
	}
	g, err := api.CreateGateway(c.Context(), in)
	if err != nil && spec != nil {
		return o.mistakes(spec, err)
	}
	if err != nil {
		return err
	}
	if err := show(o.app, g, gatewayFields); err != nil {
		return err
	}
	o.printWhereItAnswers(c.Context(), api, g)
	return nil
}

// request returns the creation that the flags describe, without the document.
func (o *gatewaysCreate) request(c *cobra.Command) (in client.CreateGatewayRequest, err error) {
	in = client.CreateGatewayRequest{
		Name: o.name, UpstreamURL: o.upstreamURL, Hostname: given(o.hostname), Timeout: given(o.timeout),
	}
	if o.maxBody != 0 {
		in.MaxBodyBytes = &o.maxBody
	}
	if len(o.keyHeaders) > 0 {
		in.KeyHeaders = &o.keyHeaders
	}
	if o.encodedSlashes {
		in.AllowEncodedSlashes = &o.encodedSlashes
	}
	if c.Flags().Changed("cut-streams") {
		in.CutStreams = &o.cutStreams
	}
	if c.Flags().Changed("default") {
		in.Default = &o.isDefault
	}
	if in.GlobalRateLimit, err = o.globalLimit(); err != nil {
		return in, err
	}
	if in.Cors, err = o.cors(); err != nil {
		return in, err
	}
	headers, err := o.upstreamHeaders(o.app)
	if err != nil {
		return in, err
	}
	if headers != nil {
		in.UpstreamHeaders = &headers
	}
	ca, err := o.upstreamCA()
	if err != nil {
		return in, err
	}
	in.UpstreamCa = given(ca)
	return in, o.connection.fill(o.app, &in)
}

func gatewayFields(g *client.Gateway) []terminal.Field {
	fields := []terminal.Field{
		{"GATEWAY ID", g.GatewayID}, {"NAME", g.Name}, {"UPSTREAM URL", g.UpstreamURL}, {"HOSTNAME", g.Hostname},
		{"DEFAULT", yesNo(g.Default)},
		{"GLOBAL LIMIT", globalLimit(g.GlobalRateLimit)}, {"TIMEOUT", g.Timeout},
		{"UPSTREAM HEADERS", strings.Join(sortedKeys(g.UpstreamHeaders), ", ")},
	}
	fields = append(fields, connectionFields(g)...)
	if g.Cors != nil {
		fields = append(fields, terminal.Field{"CORS ORIGINS", strings.Join(g.Cors.Origins, ", ")})
	}
	fields = append(fields, terminal.Field{"KEY HEADERS", strings.Join(g.KeyHeaders, ", ")},
		terminal.Field{"ENCODED SLASHES", yesNo(g.AllowEncodedSlashes)}, terminal.Field{"CUT STREAMS", yesNo(g.CutStreams)})
	return append(fields, terminal.Field{"MAX BODY BYTES", number(g.MaxBodyBytes)}, terminal.Field{"REVISION", number(g.Revision)},
		terminal.Field{"CREATED", terminal.Moment(&g.CreatedAt)})
}

func globalLimit(l *client.GlobalLimit) string {
	if l == nil {
		return ""
	}
	return join(limitPart("", l.Sustained), limitPart("burst ", l.Burst))
}

func limitPart(name string, p *string) string {
	if p == nil {
		return ""
	}
	return name + *p
}

// join joins the parts that are not empty with commas.
func join(parts ...string) string {
	var full []string
	for _, p := range parts {
		if p != "" {
			full = append(full, p)
		}
	}
	return strings.Join(full, ", ")
}

// yesNo returns "yes" or "no".
func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func number(p *int64) string {
	if p == nil {
		return ""
	}
	return strconv.FormatInt(*p, 10)
}

func newGatewaysList(a *app) *cobra.Command {
	filter := &client.GatewayFilter{}
	c := &cobra.Command{Use: "list", Short: "List gateways, newest first", Args: noArgs}
	c.Flags().StringVarP(&filter.Query, "query", "q", "", "only gateways whose name, hostname or upstream URL contains this `text`")
	return lists(a, c, lister[client.Gateway]{
		options: &filter.ListOptions,
		find: func(ctx context.Context, api *client.Client) (iter.Seq2[client.Gateway, error], error) {
			return api.SearchGateways(ctx, *filter), nil
		},
		columns: []terminal.Column{
			{Name: "GATEWAY ID"}, {Name: "NAME", Flex: true}, {Name: "UPSTREAM URL", Flex: true}, {Name: "HOSTNAME", Rank: 2, Flex: true}, {Name: "DEFAULT", Rank: 1},
			{Name: "GLOBAL LIMIT", Rank: 3, Flex: true}, {Name: "REVISION", Rank: 5}, {Name: "CREATED", Rank: 4},
		},
		row: func(g *client.Gateway) []string {
			return []string{
				g.GatewayID, g.Name, g.UpstreamURL, g.Hostname, yesNo(g.Default), globalLimit(g.GlobalRateLimit), number(g.Revision), a.When(&g.CreatedAt),
			}
		},
		empty: func(c *cobra.Command) string {
			return noneMatch(c, "gateways", "Create one: keygate gateways create --name NAME --upstream-url URL")
		},
	})
}

// defaultGatewayUsage is the help for a flag --gateway that may be left out.
const defaultGatewayUsage = "`id`, name or hostname of the gateway (default: that of KEYGATE_GATEWAY or the context, or the only one)"

func newGatewaysGet(a *app) *cobra.Command {
	return shows(oneGateway(a), &cobra.Command{Use: "get GATEWAY_ID", Short: "Show a gateway"},
		(*client.Client).Gateway, gatewayFields)
}

func newGatewaysDelete(a *app) *cobra.Command {
	return destroys(oneGateway(a), &cobra.Command{Use: "delete GATEWAY_ID", Short: "Delete a gateway with its routes, and revoke the keys restricted to it"}, "delete",
		destroyer[client.Gateway]{
			lossOfGateway,
			func(api *client.Client, ctx context.Context, id string) (*client.Gateway, error) {
				return api.DeleteGateway(ctx, id)
			},
			gatewayLabel, gatewayFields,
		})
}

type gatewaysUpdate struct {
	*one
	gatewayFlags
}

func newGatewaysUpdate(a *app) *cobra.Command {
	o := &gatewaysUpdate{one: oneGateway(a)}
	c := o.add(&cobra.Command{
		Use: "update GATEWAY_ID", Short: "Change a gateway; an empty value clears a field",
		Example: "  keygate gateways update gw_01j… --global-rate-limit 6000/min --timeout ''", RunE: o.run,
	})
	o.register(c.Flags())
	return c
}

func (o *gatewaysUpdate) run(c *cobra.Command, args []string) error {
	p, err := o.patch(c)
	if err != nil {
		return err
	}
	if p == (client.GatewayPatch{}) {
		return usagef("nothing to change: give at least one flag of %s --help", c.CommandPath())
	}
	id, api, err := o.open(args)
	if err != nil {
		return err
	}
	g, err := api.UpdateGateway(c.Context(), id, p)
	if err != nil {
		return err
	}
	return show(o.app, g, gatewayFields)
}

// patch returns the changes of the flags that were given.
func (o *gatewaysUpdate) patch(c *cobra.Command) (p client.GatewayPatch, err error) {
	flags, set := c.Flags(), changesOf(c)
	if flags.Changed("name") {
		p.Name = client.Set(o.name)
	}
	if flags.Changed("upstream-url") {
		p.UpstreamURL = client.Set(o.upstreamURL)
	}
	p.Hostname, p.Timeout = set.text("hostname", o.hostname), set.text("timeout", o.timeout)
	if flags.Changed("upstream-ca") {
		ca, err := o.upstreamCA()
		if err != nil {
			return p, err
		}
		p.UpstreamCA = set.text("upstream-ca", ca)
	}
	if err := o.connection.change(o.app, c, &p); err != nil {
		return p, err
	}
	if flags.Changed("default") {
		p.Default = client.Set(o.isDefault)
	}
	p.MaxBodyBytes = set.number("max-body-bytes", o.maxBody)
	if flags.Changed("key-header") {
		p.KeyHeaders = client.Clear[[]string]()
		if len(o.keyHeaders) > 0 {
			p.KeyHeaders = client.Set(o.keyHeaders)
		}
	}
	if flags.Changed("allow-encoded-slashes") {
		p.AllowEncodedSlashes = client.Set(o.encodedSlashes)
	}
	if flags.Changed("cut-streams") {
		p.CutStreams = client.Set(o.cutStreams)
	}
	if flags.Changed("global-rate-limit") || flags.Changed("global-burst") {
		limit, err := o.globalLimit()
		if err != nil {
			return p, err
		}
		p.GlobalRateLimit = changeTo(limit)
	}
	if flags.Changed("cors-origin") || flags.Changed("cors-method") || flags.Changed("cors-header") || flags.Changed("cors-max-age") {
		cors, err := o.cors()
		if err != nil {
			return p, err
		}
		p.CORS = changeTo(cors)
	}
	if flags.Changed("upstream-header") || flags.Changed("upstream-headers-file") {
		headers, err := o.upstreamHeaders(o.app)
		if err != nil {
			return p, err
		}
		p.UpstreamHeaders = client.Clear[map[string]string]()
		if headers != nil {
			p.UpstreamHeaders = client.Set(headers)
		}
	}
	return p, nil
}

// changeTo returns a change to *p, or one that clears the field if p is nil.
func changeTo[T any](p *T) client.Change[T] {
	if p == nil {
		return client.Clear[T]()
	}
	return client.Set(*p)
}
