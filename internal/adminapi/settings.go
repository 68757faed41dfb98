package adminapi

import (
	"bytes"
	"cmp"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/ratelimit"
)

// The settings of a gateway in requests and in its record are loops over gateway.Settings. How they look
// in JSON follows from their kind.

// createGatewayRequest is the body of createGateway, beside the settings.
type createGatewayRequest struct {
	Upstreams      []upstreamInput `json:"upstreams,omitempty" nullable:"true" maxItems:"64" doc:"Upstreams of the gateway, of which the one with the name default takes the place of upstream_url."`
	Spec           *string         `json:"spec,omitempty" nullable:"true" minLength:"1" doc:"OpenAPI 3.0, 3.1 or 3.2 document in YAML or JSON. It becomes revision 1."`
	AllowDuplicate *bool           `json:"allow_duplicate,omitempty" nullable:"true" doc:"Allow a name that another gateway of the account has. Otherwise it is a 409." example:"true"`
	DefaultPlanID  *string         `json:"default_plan_id,omitempty" nullable:"true" minLength:"1" doc:"Identifier of the plan of default_plan, in its place." example:"plan_01jz8y5c3te9b8r2m6q4v7x0bb"`
	Config         *string         `json:"config,omitempty" nullable:"true" minLength:"1" doc:"Configuration file in YAML or JSON. It becomes revision 1. Its settings are applied after the other fields. It cannot be given together with spec." example:"routes: [{path: /orders, methods: [GET]}]"`
}

// TransformSchema adds the settings to the schema. null means the same as an absent field; fields that a
// creation requires cannot be null.
func (createGatewayRequest) TransformSchema(r huma.Registry, schema *huma.Schema) *huma.Schema {
	for _, s := range gateway.Settings() {
		doc := cmp.Or(s.Doc.Create, s.Doc.Update)
		schema.Properties[s.Name] = inputSchema(r, &s, doc, !s.Required)
	}
	return schema
}

// updateGatewayRequest is the body of updateGateway, beside the settings.
type updateGatewayRequest struct {
	AllowDuplicate *bool   `json:"allow_duplicate,omitempty" nullable:"true" doc:"Allow a new name that another gateway of the account has. Otherwise it is a 409." example:"true"`
	DefaultPlanID  *string `json:"default_plan_id,omitempty" nullable:"true" minLength:"1" doc:"Identifier of the plan of default_plan, in its place; null for none." example:"plan_01jz8y5c3te9b8r2m6q4v7x0bb"`
}

// TransformSchema adds the settings to the schema.
func (updateGatewayRequest) TransformSchema(r huma.Registry, schema *huma.Schema) *huma.Schema {
	for _, s := range gateway.Settings() {
		schema.Properties[s.Name] = inputSchema(r, &s, s.Doc.Update, !s.NotNull)
	}
	return schema
}

// inputSchema returns the schema of a setting in a request.
func inputSchema(r huma.Registry, s *gateway.Setting, doc string, nullable bool) *huma.Schema {
	tags := tagsOf("doc", doc, "example", s.Example)
	most := ""
	if s.Most > 0 {
		most = strconv.FormatInt(s.Most, 10)
	}
	kind := reflect.TypeFor[string]()
	switch s.Kind {
	case gateway.KindTargets:
		kind = reflect.TypeFor[[]TargetInput]()
		tags += tagsOf("minItems", "1", "maxItems", most)
	case gateway.KindEjection:
		kind, nullable = reflect.TypeFor[ejectionInput](), false
	case gateway.KindRetries:
		kind, nullable = reflect.TypeFor[retriesInput](), false
	case gateway.KindSplit:
		kind = reflect.TypeFor[[]SplitInput]()
		tags += tagsOf("maxItems", most)
	case gateway.KindHealth:
		kind, nullable = reflect.TypeFor[healthInput](), false
	case gateway.KindBool:
		kind = reflect.TypeFor[bool]()
	case gateway.KindCount:
		kind = reflect.TypeFor[int64]()
		tags += tagsOf("minimum", "1", "maximum", most)
	case gateway.KindList:
		kind = reflect.TypeFor[[]string]()
		least := "1"
		if s.MayBeEmpty {
			least = ""
		}
		tags += tagsOf("minItems", least, "maxItems", most)
	case gateway.KindHeaders:
		kind = reflect.TypeFor[map[string]string]()
		tags += tagsOf("maxProperties", most)
	case gateway.KindLimit:
		kind, nullable = reflect.TypeFor[globalLimitInput](), false // the object itself has null
	case gateway.KindCORS:
		kind, nullable = reflect.TypeFor[corsInput](), false
	case gateway.KindSwitches:
		kind, nullable = reflect.TypeFor[selfServiceInput](), false
	case gateway.KindMaintenance:
		kind, nullable = reflect.TypeFor[maintenanceInput](), false
	case gateway.KindHeaderRules:
		kind, nullable = reflect.TypeFor[headerRulesInput](), false
	case gateway.KindText, gateway.KindDuration, gateway.KindCertificate, gateway.KindKey, gateway.KindPairs:
		if tags += tagsOf("enum", strings.Join(s.Choices, ",")); s.Choices == nil {
			tags += tagsOf("minLength", "1", "maxLength", most)
		}
	}
	tags += tagsOf("nullable", strconv.FormatBool(nullable))
	return huma.SchemaFromField(r, reflect.StructField{Name: s.Name, Type: kind, Tag: tags}, "")
}

// tagsOf returns the tags of a struct field from their names and values. Those with an empty value are left
// out.
func tagsOf(pairs ...string) (tags reflect.StructTag) {
	for pair := range slices.Chunk(pairs, 2) {
		if pair[1] != "" {
			tags += reflect.StructTag(pair[0] + ":" + strconv.Quote(pair[1]) + " ")
		}
	}
	return tags
}

// gatewayBody is the body of a call that sets settings, by the names of the fields.
type gatewayBody map[string]jsontext.Value

// text returns a field that is a text; "" if it is absent or null.
func (b gatewayBody) text(name string) (text string, err error) {
	if value, given := b[name]; given {
		err = unmarshal(value, &text)
	}
	return text, err
}

// allowsDuplicate returns the field allow_duplicate.
func (b gatewayBody) allowsDuplicate() (allowed bool, err error) {
	if value, given := b["allow_duplicate"]; given {
		err = unmarshal(value, &allowed)
	}
	return allowed, err
}

// defaultPlanID returns the field default_plan_id.
func (b gatewayBody) defaultPlanID() (control.Optional[string], error) {
	content, given := b["default_plan_id"]
	id, err := b.text("default_plan_id")
	return control.Optional[string]{Present: given, Null: given && content.Kind() == 'n', Value: id}, err
}

// settings returns what a body changes. null in a creation means the same as an absent field. If a value
// is invalid on its own, settings refuses the call.
func (c *call) settings(body gatewayBody, creates bool) (gateway.Patch, error) {
	var p gateway.Patch
	for _, s := range gateway.Settings() {
		switch value, given := body[s.Name]; {
		case !given:
		case value.Kind() != 'n':
			v, err := decodeSetting(&s, value)
			switch {
			case err == nil:
				s.Put(&p, v)
			case fault.CodeOf(err) != fault.ValidationFailed:
				return p, err
			default:
				c.refuse(err)
			}
		case !creates && !s.NotNull:
			s.Put(&p, nil)
		}
	}
	return p, nil
}

// decodeSetting returns the value of a setting that is not null, in the type of its kind.
func decodeSetting(s *gateway.Setting, content jsontext.Value) (any, error) {
	switch s.Kind {
	case gateway.KindBool:
		return decoded[bool](content)
	case gateway.KindCount:
		return decoded[int64](content)
	case gateway.KindList:
		return decoded[[]string](content)
	case gateway.KindHeaders:
		return decoded[map[string]string](content)
	case gateway.KindLimit:
		in, err := decoded[globalLimitInput](content)
		if err != nil {
			return nil, err
		}
		limit, err := in.config()
		return limit, fault.Prefixed(s.Name, err)
	case gateway.KindCORS:
		in, err := decoded[corsInput](content)
		return in.cors(), err
	case gateway.KindTargets:
		in, err := decoded[[]TargetInput](content)
		list := make([]gateway.Target, len(in))
		for i := range in {
			list[i] = in[i].target()
		}
		return list, err
	case gateway.KindSplit:
		in, err := decoded[[]SplitInput](content)
		return splitOf(in), err
	case gateway.KindEjection:
		in, err := decoded[ejectionInput](content)
		return in.Ejection, err
	case gateway.KindRetries:
		in, err := decoded[retriesInput](content)
		return in.retries(), err
	case gateway.KindHealth:
		in, err := decoded[healthInput](content)
		return in.health(), err
	case gateway.KindSwitches:
		in, err := decoded[selfServiceInput](content)
		return gateway.SelfServicePatch{Usage: in.Usage, Rotate: in.Rotate}, err
	case gateway.KindMaintenance:
		in, err := decoded[maintenanceInput](content)
		return &gateway.Maintenance{Message: value(in.Message), Allow: in.Allow}, err
	case gateway.KindHeaderRules:
		in, err := decoded[headerRulesInput](content)
		return new(in.rules()), err
	case gateway.KindText, gateway.KindDuration, gateway.KindCertificate, gateway.KindKey, gateway.KindPairs:
	}
	return decoded[string](content)
}

func decoded[T any](content jsontext.Value) (v T, err error) {
	err = unmarshal(content, &v)
	return v, err
}

type globalLimitInput struct {
	_         struct{} `nullable:"true"`
	Sustained string   `json:"sustained" minLength:"1" doc:"Refill rate, <count>/<unit>." example:"6000/min"`
	Burst     *string  `json:"burst,omitempty" nullable:"true" minLength:"1" doc:"Bucket capacity, <count>/<unit>. Default: the count of sustained." example:"200/s"`
}

func (g *globalLimitInput) config() (ratelimit.Config, error) {
	return ratelimit.ParseConfig(g.Sustained, value(g.Burst), "", "")
}

type corsInput struct {
	_       struct{} `nullable:"true"`
	Origins []string `json:"origins" nullable:"false" minItems:"1" doc:"Allowed origins, or * for all." example:"https://app.example.com"`
	Methods []string `json:"methods,omitempty" nullable:"true" doc:"Allowed methods." example:"GET,POST"`
	Headers []string `json:"headers,omitempty" nullable:"true" doc:"Allowed request headers." example:"Authorization"`
	MaxAge  *int     `json:"max_age,omitempty" nullable:"true" minimum:"0" maximum:"86400" doc:"How long a browser may cache a preflight response, in seconds." example:"600"`
}

func (c *corsInput) cors() gateway.CORS {
	return gateway.CORS{Origins: c.Origins, Methods: c.Methods, Headers: c.Headers, MaxAge: value(c.MaxAge)}
}

type selfServiceInput struct {
	_      struct{} `nullable:"true"`
	Usage  *bool    `json:"usage,omitempty" nullable:"false" doc:"Whether holders of keys may see their usage, at /.keygate/usage." example:"true"`
	Rotate *bool    `json:"rotate,omitempty" nullable:"false" doc:"Whether holders of keys may rotate them, at /.keygate/rotate." example:"true"`
}

type maintenanceInput struct {
	_       struct{} `nullable:"true"`
	Message *string  `json:"message,omitempty" nullable:"true" maxLength:"500" doc:"Message of the 503. Default: the service is under maintenance: try again later." example:"back at 14:00 UTC"`
	Allow   []string `json:"allow,omitempty" nullable:"true" maxItems:"256" doc:"Networks whose addresses are served nevertheless, in CIDR notation." example:"203.0.113.0/24"`
}

type maintenanceRecord struct {
	Message *string  `json:"message" nullable:"true" doc:"Message of the 503; null for the default." example:"back at 14:00 UTC"`
	Allow   []string `json:"allow" nullable:"false" doc:"Networks whose addresses are served nevertheless." example:"203.0.113.0/24"`
}

// gatewayRecord is the record of a gateway: its settings, and these fields.
type gatewayRecord struct {
	GatewayID string    `json:"gateway_id" doc:"Identifier of the gateway." example:"gw_01jz8y5c3te9b8r2m6q4v7x0aa"`
	Revision  *int64    `json:"revision" doc:"Number of the current revision; null before the first push." example:"3"`
	CreatedAt time.Time `json:"created_at" doc:"When the gateway was created."`
	Warnings  []string  `json:"warnings,omitempty" nullable:"false" doc:"Only in the response to a creation, or to a change of upstream_url: that the upstream could not be reached within 2 seconds, and why. Absent if there are none." example:"upstream_url cannot be reached now: the host name in upstream_url does not exist"`

	DefaultPlanID string `json:"default_plan_id,omitempty" doc:"Identifier of the plan in default_plan. Absent if there is none." example:"plan_01jz8y5c3te9b8r2m6q4v7x0bb"`
	TargetCount   int    `json:"target_count,omitempty" doc:"Number of targets of its upstreams. Absent if upstream_url is the only one." example:"3"`

	settings []member // settings that the record always has
	optional []member // settings that are absent if they are not set
}

// member is a field of a JSON object.
type member struct {
	name  string
	value any
}

type globalLimit struct {
	_         struct{} `nullable:"true"`
	Sustained *string  `json:"sustained" doc:"Refill rate, <count>/<unit>." example:"6000/min"`
	Burst     *string  `json:"burst" doc:"Bucket capacity, <count>/<unit>; null means the count of sustained." example:"200/s"`
}

type corsRecord struct {
	_       struct{} `nullable:"true"`
	Origins []string `json:"origins" nullable:"false" doc:"Allowed origins." example:"https://app.example.com"`
	Methods []string `json:"methods" nullable:"false" doc:"Allowed methods." example:"GET,POST"`
	Headers []string `json:"headers" nullable:"false" doc:"Allowed request headers." example:"Authorization"`
	MaxAge  int      `json:"max_age" doc:"How long a browser may cache a preflight response, in seconds." example:"600"`
}

type selfService struct {
	Usage  bool `json:"usage" doc:"Whether holders of keys may see their usage, at /.keygate/usage." example:"true"`
	Rotate bool `json:"rotate" doc:"Whether holders of keys may rotate them, at /.keygate/rotate." example:"true"`
}

// recordSettings returns the settings that the record has, in its order: settings that are left out when
// they are not set come last.
func recordSettings() []gateway.Setting {
	all := slices.DeleteFunc(gateway.Settings(), func(s gateway.Setting) bool { return s.Doc.Record == "" })
	rank := func(s gateway.Setting) int {
		switch {
		case s.Record.First:
			return 0
		case s.Record.OmitEmpty:
			return 2
		default:
			return 1
		}
	}
	slices.SortStableFunc(all, func(a, b gateway.Setting) int { return rank(a) - rank(b) })
	return all
}

// TransformSchema adds the settings to the schema.
func (gatewayRecord) TransformSchema(r huma.Registry, schema *huma.Schema) *huma.Schema {
	required := []string{"gateway_id"}
	for _, s := range recordSettings() {
		schema.Properties[s.Name] = recordSchema(r, &s, false)
		if !s.Record.OmitEmpty {
			required = append(required, s.Name)
		}
	}
	schema.Required = slices.Concat(required, []string{"revision", "created_at"})
	return schema
}

// recordSchema returns the schema of a setting in the record.
func recordSchema(r huma.Registry, s *gateway.Setting, nullable bool) *huma.Schema {
	example := cmp.Or(s.Record.Example, s.Example)
	kind := reflect.TypeFor[string]()
	switch s.Kind {
	case gateway.KindTargets:
		kind = reflect.TypeFor[[]targetRecord]()
	case gateway.KindSplit:
		kind = reflect.TypeFor[[]SplitRecord]()
	case gateway.KindEjection:
		kind = reflect.TypeFor[ejectionRecord]()
	case gateway.KindRetries:
		kind = reflect.TypeFor[retriesRecord]()
	case gateway.KindHealth:
		kind = reflect.TypeFor[healthRecord]()
	case gateway.KindBool:
		kind = reflect.TypeFor[bool]()
	case gateway.KindCount:
		kind, nullable = reflect.TypeFor[int64](), nullable || !s.Record.OmitEmpty
	case gateway.KindList:
		kind = reflect.TypeFor[[]string]()
	case gateway.KindHeaders:
		kind = reflect.TypeFor[map[string]string]()
	case gateway.KindLimit:
		kind = reflect.TypeFor[globalLimit]()
	case gateway.KindCORS:
		kind = reflect.TypeFor[corsRecord]()
	case gateway.KindSwitches:
		kind = reflect.TypeFor[selfService]()
	case gateway.KindMaintenance:
		kind = reflect.TypeFor[maintenanceRecord]()
	case gateway.KindHeaderRules:
		kind = reflect.TypeFor[headerRulesRecord]()
	case gateway.KindText, gateway.KindDuration, gateway.KindCertificate, gateway.KindKey, gateway.KindPairs:
	}
	tags := tagsOf("doc", s.Doc.Record, "example", example, "enum", strings.Join(s.Choices, ","), "nullable", strconv.FormatBool(nullable))
	return huma.SchemaFromField(r, reflect.StructField{Name: s.Name, Type: kind, Tag: tags}, "")
}

func presentGateway(g *gateway.Gateway) gatewayRecord {
	r := gatewayRecord{GatewayID: g.ID, Revision: optionalNumber(g.Revision), CreatedAt: g.CreatedAt.UTC(), DefaultPlanID: g.DefaultPlanID}
	if n := g.CountTargets(); n > 1 {
		r.TargetCount = n
	}
	for _, s := range recordSettings() {
		switch v := s.Value(g); {
		case !s.Record.OmitEmpty:
			r.settings = append(r.settings, member{s.Name, presentSetting(v)})
		case !reflect.ValueOf(v).IsZero():
			r.optional = append(r.optional, member{s.Name, presentSetting(v)})
		}
	}
	return r
}

// presentSetting returns a value of a setting as the record has it.
func presentSetting(value any) any {
	switch v := value.(type) {
	case int64:
		return optionalNumber(v)
	case map[string]string:
		if v == nil {
			return map[string]string{}
		}
	case ratelimit.Config:
		if v.IsZero() {
			return nil
		}
		return &globalLimit{Sustained: rate(v.Sustained), Burst: rate(v.Burst)}
	case gateway.CORS:
		if len(v.Origins) == 0 {
			return nil
		}
		return &corsRecord{Origins: orEmpty(v.Origins), Methods: orEmpty(v.Methods), Headers: orEmpty(v.Headers), MaxAge: v.MaxAge}
	case []gateway.Target:
		return presentTargets(v)
	case gateway.Split:
		return presentSplit(v)
	case gateway.Ejection:
		return ejectionRecord{v}
	case gateway.Retries:
		return retriesRecord{Attempts: v.Attempts, BudgetPercent: v.BudgetPercent, On: orEmpty(v.On), IdempotencyKey: v.IdempotencyKey}
	case gateway.Health:
		return presentHealth(v)
	case gateway.SelfServicePatch:
		return selfService(v.Apply(gateway.SelfService{}))
	case *gateway.HeaderRules:
		return presentHeaderRules(v)
	case *gateway.Maintenance:
		return maintenanceRecord{Message: optionalText(v.Message), Allow: orEmpty(v.Allow)}
	}
	return value
}

// MarshalJSON returns the object, with the settings before the number of the revision, or at the end if they
// may be absent.
func (r gatewayRecord) MarshalJSON() ([]byte, error) {
	members := slices.Concat(
		[]member{{"gateway_id", r.GatewayID}}, r.settings,
		[]member{{"revision", r.Revision}, {"created_at", r.CreatedAt}}, r.optional)
	if r.DefaultPlanID != "" {
		members = append(members, member{"default_plan_id", r.DefaultPlanID})
	}
	if r.TargetCount > 0 {
		members = append(members, member{"target_count", r.TargetCount})
	}
	if len(r.Warnings) > 0 {
		members = append(members, member{"warnings", r.Warnings})
	}
	return marshalMembers(members)
}

// marshalMembers returns the JSON object with these fields in this order.
func marshalMembers(members []member) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	for i, m := range members {
		out.WriteByte("{,"[min(i, 1)])
		out.WriteString(strconv.Quote(m.name) + ":")
		if err := enc.Encode(m.value); err != nil {
			return nil, err
		}
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}
