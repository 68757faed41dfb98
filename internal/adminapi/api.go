package adminapi

import (
	"context"
	"net/url"
	"time"

	"github.com/keygate/keygate/internal/control"
)

type Config struct {
	Control  *control.Service
	Settings func() []Setting
}
type API struct {
	cfg                        Config
	documentJSON, documentYAML []byte
}
type call struct {
	ctx    context.Context
	caller control.Caller
	params map[string]string
	query  url.Values
	body   []byte
	match  control.Match
	now    time.Time
}

func tagged(body any, version int64) answer                       { return answer{} }
func keep[R any](c *call, present func(R) answer) context.Context { return c.ctx }
func (c *call) decode(v any) error                                { return nil }
func unmarshal(data []byte, v any) error                          { return nil }
