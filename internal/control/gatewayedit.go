package control

import (
	"cmp"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/ratelimit"
)

// GatewayPatch changes settings of a gateway. An absent field keeps the setting; null restores
// its default. A creation applies a patch to the defaults, and requires Name and Upstream.URL.
type GatewayPatch struct {
	Name         Optional[string]
	Hostname     Optional[string]
	GlobalLimit  Optional[ratelimit.Config]
	Timeout      Optional[string]
	CORS         Optional[gateway.CORS]
	MaxBodyBytes Optional[int64]
	KeyHeaders   Optional[[]string]
	Default      Optional[bool] // only of the account default
	Upstream     UpstreamPatch

	AllowEncodedSlashes Optional[bool]
	CutStreams          Optional[bool]

	// fromFile is set for a configuration file, where *** stands for a secret that the gateway has.
	fromFile bool
}

// gatewayEdit is a GatewayPatch whose settings were each checked by themselves.
type gatewayEdit struct {
	set []func(*gateway.Gateway) error // in this order

	isDefault     Optional[bool]
	newClientPair bool // the client certificate or its key is set
	fromFile      bool // as of GatewayPatch
	open          func(sealed []byte) ([]byte, error)
}

// put makes e set the field that o names: to the zero value for null, else to o's
// value, which check must accept.
func put[T any](e *gatewayEdit, o Optional[T], check func(T) error, field func(*gateway.Gateway) *T) error {
	if !o.Present {
		return nil
	}
	var value T
	if !o.Null {
		if err := check(o.Value); err != nil {
			return err
		}
		value = o.Value
	}
	e.put(func(g *gateway.Gateway) { *field(g) = value })
	return nil
}

// put makes e set something that cannot fail.
func (e *gatewayEdit) put(set func(*gateway.Gateway)) {
	e.set = append(e.set, func(g *gateway.Gateway) error {
		set(g)
		return nil
	})
}

// anyValue is the check of a setting that takes every value of its type.
func anyValue[T any](T) error { return nil }

// orDefault returns o with null replaced by a value.
func orDefault[T any](o Optional[T], value T) Optional[T] {
	if o.Null {
		o.Null, o.Value = false, value
	}
	return o
}

// readPatch checks each setting by itself, and that the account may have the
// hostname.
func (s *Service) readPatch(c *Actor, p GatewayPatch) (*gatewayEdit, error) {
	e := &gatewayEdit{open: s.cfg.Sealer.Open, fromFile: p.fromFile}
	err := fault.Join(
		put(e, orDefault(p.Name, ""), gateway.CheckName, func(g *gateway.Gateway) *string { return &g.Name }),
		s.putUpstream(e, p.Upstream),
		s.putHostname(e, c, p.Hostname),
		putDefault(e, c, p.Default),
		put(e, p.GlobalLimit, checkGlobalLimit, func(g *gateway.Gateway) *ratelimit.Config { return &g.GlobalLimit }),
		put(e, orDefault(p.Timeout, gateway.DefaultTimeout), gateway.CheckTimeout, func(g *gateway.Gateway) *string { return &g.Timeout }),
		putCORS(e, p.CORS),
		put(e, p.MaxBodyBytes, gateway.CheckMaxBodyBytes, func(g *gateway.Gateway) *int64 { return &g.MaxBodyBytes }),
		put(e, p.KeyHeaders, gateway.CheckKeyHeaders, func(g *gateway.Gateway) *[]string { return &g.Requests.KeyHeaders }),
		put(e, p.AllowEncodedSlashes, anyValue, func(g *gateway.Gateway) *bool { return &g.Requests.AllowEncodedSlashes }),
	)
	if cut := orDefault(p.CutStreams, true); cut.Present {
		e.put(func(g *gateway.Gateway) { g.Requests.KeepStreams = !cut.Value })
	}
	return e, err
}

func (s *Service) putHostname(e *gatewayEdit, c *Actor, h Optional[string]) error {
	if !h.Present {
		return nil
	}
	name := "" // made from the gateway's identifier
	if !h.Null {
		var err error
		if name, err = gateway.ParseHostname(h.Value, s.cfg.GatewayDomain); err != nil {
			return err
		}
		if !c.Account.MayUse(name) {
			return fault.Invalid("hostname", "this account may not use %s: ask the operator to allow it", name)
		}
	}
	e.put(func(g *gateway.Gateway) { g.Hostname, g.HostGiven = name, name != "" })
	return nil
}

func checkGlobalLimit(l ratelimit.Config) error {
	return fault.Prefixed("global_rate_limit", cmp.Or(l.Validate(), gateway.CheckGlobalLimit(l)))
}

func putCORS(e *gatewayEdit, o Optional[gateway.CORS]) error {
	if !o.Present {
		return nil
	}
	var cors *gateway.CORS
	if !o.Null {
		normal := o.Value.Normal()
		cors = &normal
		if err := cors.Validate(); err != nil {
			return fault.Prefixed("cors", err)
		}
	}
	e.put(func(g *gateway.Gateway) { g.CORS = cors })
	return nil
}

// apply changes g and checks the settings that depend on each other. It replaces
// maps and slices and never changes them, so g may share them with another record.
func (e *gatewayEdit) apply(g *gateway.Gateway) error {
	var problems []error
	for _, set := range e.set {
		problems = append(problems, set(g))
	}
	if err := fault.Join(problems...); err != nil {
		return err
	}
	return fault.Join(e.applyDefault(g), e.checkUpstream(&g.Upstream))
}
