package provider

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"reflect"
	"strings"

	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// parse decodes JSON. Numbers keep all of their digits.
func parse(content []byte) (any, error) {
	var v any
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.UseNumber()
	err := decoder.Decode(&v)
	return v, err
}

// fromJSON returns the value of an attribute, or of a part of it, that the API has. What is secret is null. A value of any
// JSON has the type that it has.
func fromJSON(t tftypes.Type, a *attribute, v any) (tftypes.Value, error) {
	if v == nil || a != nil && a.Secret {
		return tftypes.NewValue(t, nil), nil
	}
	switch typed := t.(type) {
	case tftypes.List:
		return listFrom(typed, a, v)
	case tftypes.Map:
		return mapFrom(typed, a, v)
	case tftypes.Object:
		return objectFrom(typed, a, v)
	}
	switch {
	case t.Is(tftypes.DynamicPseudoType):
		return anyFrom(v)
	case t.Is(tftypes.Bool):
		if is, ok := v.(bool); ok {
			return tftypes.NewValue(t, is), nil
		}
	case t.Is(tftypes.Number):
		if text, ok := v.(json.Number); ok {
			return number(text)
		}
	case t.Is(tftypes.String):
		if text, ok := v.(string); ok {
			return tftypes.NewValue(t, text), nil
		}
		text, err := json.Marshal(v)
		return tftypes.NewValue(t, string(text)), err
	}
	return tftypes.Value{}, fmt.Errorf("the API has %v where a value of type %s was expected: is the provider older than the server?", v, t)
}

func number(text json.Number) (tftypes.Value, error) {
	f, _, err := big.ParseFloat(text.String(), 10, 512, big.ToNearestEven)
	if err != nil {
		return tftypes.Value{}, fmt.Errorf("the API has the number %s: %w", text, err)
	}
	return tftypes.NewValue(tftypes.Number, f), nil
}

func listFrom(t tftypes.List, a *attribute, v any) (tftypes.Value, error) {
	items, ok := v.([]any)
	if !ok {
		return tftypes.Value{}, fmt.Errorf("the API has %v where a list was expected", v)
	}
	values := make([]tftypes.Value, len(items))
	for i, item := range items {
		var err error
		if values[i], err = fromJSON(t.ElementType, a.Of, item); err != nil {
			return tftypes.Value{}, err
		}
	}
	return tftypes.NewValue(t, values), nil
}

func mapFrom(t tftypes.Map, a *attribute, v any) (tftypes.Value, error) {
	members, ok := v.(map[string]any)
	if !ok {
		return tftypes.Value{}, fmt.Errorf("the API has %v where a map was expected", v)
	}
	values := map[string]tftypes.Value{}
	for name, member := range members {
		var err error
		if values[name], err = fromJSON(t.ElementType, a.Of, member); err != nil {
			return tftypes.Value{}, err
		}
	}
	return tftypes.NewValue(t, values), nil
}

func objectFrom(t tftypes.Object, a *attribute, v any) (tftypes.Value, error) {
	members, ok := v.(map[string]any)
	if !ok {
		return tftypes.Value{}, fmt.Errorf("the API has %v where an object was expected", v)
	}
	values := map[string]tftypes.Value{}
	for name, member := range t.AttributeTypes {
		var err error
		if values[name], err = fromJSON(member, a.Attributes[name], members[name]); err != nil {
			return tftypes.Value{}, err
		}
	}
	return tftypes.NewValue(t, values), nil
}

// anyFrom returns a value of the type that JSON has. A list is a tuple.
func anyFrom(v any) (tftypes.Value, error) {
	switch v := v.(type) {
	case bool:
		return tftypes.NewValue(tftypes.Bool, v), nil
	case json.Number:
		return number(v)
	case string:
		return tftypes.NewValue(tftypes.String, v), nil
	case []any:
		values, kinds := make([]tftypes.Value, len(v)), make([]tftypes.Type, len(v))
		for i, item := range v {
			var err error
			if values[i], err = anyFrom(item); err != nil {
				return tftypes.Value{}, err
			}
			kinds[i] = values[i].Type()
		}
		return tftypes.NewValue(tftypes.Tuple{ElementTypes: kinds}, values), nil
	case map[string]any:
		values, kinds := map[string]tftypes.Value{}, map[string]tftypes.Type{}
		for name, member := range v {
			var err error
			if values[name], err = anyFrom(member); err != nil {
				return tftypes.Value{}, err
			}
			kinds[name] = values[name].Type()
		}
		return tftypes.NewValue(tftypes.Object{AttributeTypes: kinds}, values), nil
	default:
		return tftypes.NewValue(tftypes.DynamicPseudoType, nil), nil
	}
}

// toJSON returns what the API gets for a value. Members that are null are left out, except in an update of an object that
// would otherwise leave them as they are.
func toJSON(v tftypes.Value, a *attribute, update bool) (any, error) {
	if v.IsNull() || !v.IsKnown() {
		return nil, nil
	}
	switch t := v.Type(); {
	case t.Is(tftypes.Bool):
		var is bool
		err := v.As(&is)
		return is, err
	case t.Is(tftypes.Number):
		var f big.Float
		err := v.As(&f)
		return json.Number(f.Text('f', -1)), err
	case t.Is(tftypes.String):
		var text string
		err := v.As(&text)
		if a != nil && a.Type == "any" && strings.HasPrefix(text, "{") {
			return json.RawMessage(text), err
		}
		return text, err
	case t.Is(tftypes.List{}) || t.Is(tftypes.Set{}) || t.Is(tftypes.Tuple{}):
		var values []tftypes.Value
		if err := v.As(&values); err != nil {
			return nil, err
		}
		items := make([]any, len(values))
		for i, value := range values {
			var err error
			if items[i], err = toJSON(value, a.of(), update); err != nil {
				return nil, err
			}
		}
		return items, nil
	default:
		var values map[string]tftypes.Value
		if err := v.As(&values); err != nil {
			return nil, err
		}
		members := map[string]any{}
		for name, value := range values {
			member := a.member(name)
			if value.IsNull() && (!update || a == nil || !a.Merge || !member.Null) {
				continue
			}
			var err error
			if members[name], err = toJSON(value, member, update); err != nil {
				return nil, err
			}
		}
		return members, nil
	}
}

// of returns the attribute of an element, or nil.
func (a *attribute) of() *attribute {
	if a == nil {
		return nil
	}
	return a.Of
}

// member returns the attribute of a member of an object or map, or nil.
func (a *attribute) member(name string) *attribute {
	switch {
	case a == nil:
		return nil
	case a.Of != nil:
		return a.Of
	default:
		return a.Attributes[name]
	}
}

// refreshed returns the value of an attribute after the API was read. What the API has as it had it when Terraform last saw it
// keeps the value in the state, since the API may write a value in another way than the configuration does.
func refreshed(t tftypes.Type, a *attribute, state tftypes.Value, seen, now any) (tftypes.Value, error) {
	if reflect.DeepEqual(seen, now) {
		return state, nil
	}
	was, isObject := seen.(map[string]any)
	is, stillObject := now.(map[string]any)
	object, typed := t.(tftypes.Object)
	if !typed || !isObject || !stillObject || state.IsNull() {
		return fromJSON(t, a, now)
	}
	var members map[string]tftypes.Value
	if err := state.As(&members); err != nil {
		return tftypes.Value{}, err
	}
	members = maps.Clone(members) // which the state shares
	for name, member := range members {
		var err error
		if members[name], err = refreshed(object.AttributeTypes[name], a.Attributes[name], member, was[name], is[name]); err != nil {
			return tftypes.Value{}, err
		}
	}
	return tftypes.NewValue(t, members), nil
}
