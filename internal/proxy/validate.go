package proxy

import (
	"context"

	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/validate"
	"github.com/keygate/keygate/internal/validation"
)

// Validates reports whether an admitted request is held against the OpenAPI document of its gateway before anything else is done with it
// (edge.md, section 6): the engine then calls BeginCheck, Check.Hold with the body as far as it is wanted, and EndCheck.
func (x *Exchange) Validates() bool {
	return x.Verdict.Checks.Document != nil && x.cfg.Checker != nil
}

// BeginCheck begins the check of the request. length is the declared length of its body: 0 without one, negative if it is not known. The
// error is ctx.Err(), or the refusal of the request.
func (x *Exchange) BeginCheck(ctx context.Context, method string, fields func(name string) []string, hasBody bool, length int64) error {
	v := &x.Verdict
	if limit := v.Gateway.MaxBodyBytes; limit > 0 && length > limit {
		v.Checks = validation.Target{}
		return BodyTooLarge(limit)
	}
	t := v.Checks
	v.Checks = validation.Target{} // which may be large, and is needed no more
	x.check = &validation.Check{}
	return x.check.Begin(ctx, x.cfg.Checker, t, method, validate.Request{
		Path: validation.PathOf(v.Path), Query: string(v.AppendQuery(nil)), Header: fields, HasBody: hasBody,
	}, length)
}

// Check is the check that BeginCheck has begun, or nil.
func (x *Exchange) Check() *validation.Check { return x.check }

// EndCheck checks the request, with its body if that was held. The error is the refusal of the request.
func (x *Exchange) EndCheck(body []byte) error {
	key := ""
	if x.Verdict.Caller.Kind() == snapshot.KeyCaller {
		key = x.Verdict.Caller.ID()
	}
	return x.check.End(body, key)
}

// ReleaseBody gives back the memory that is reserved for a body that was held.
func (x *Exchange) ReleaseBody() {
	if x.check != nil {
		x.check.Release()
	}
}
