// SPDX-License-Identifier: Apache-2.0

package cedar

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	cedar "github.com/cedar-policy/cedar-go"

	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/dataset"
)

// Finding is a name in a policy that no dataset has: the policy protects nothing, or permits nothing.
type Finding struct {
	Policy string `json:"policy"`
	Line   int    `json:"line"`
	Text   string `json:"text"`
}

func (f Finding) String() string {
	return fmt.Sprintf("line %d: policy %s: %s", f.Line, f.Policy, f.Text)
}

// Check finds columns, datasets and classes that the policies name and the datasets do not have.
func (p *Policy) Check(sets dataset.Config) []Finding {
	names := known(sets)
	findings := []Finding{}
	for _, id := range p.ids {
		one := p.set.Get(cedar.PolicyID(id))
		raw, err := one.MarshalJSON()
		var tree any
		if err == nil {
			err = json.Unmarshal(raw, &tree)
		}
		add := func(text string) {
			f := Finding{id, one.Position().Line, text}
			if !slices.Contains(findings, f) {
				findings = append(findings, f)
			}
		}
		if err != nil {
			add("cannot be read back: " + err.Error())
			continue
		}
		walk(tree, names, add)
	}
	return findings
}

// names are what exists, by what can be called so: an entity type, or an attribute of a column.
type names map[string]map[string]bool

func known(sets dataset.Config) names {
	n := names{"Column": {}, "Dataset": {}, "Class": {}, "class": {"": true}, "name": {}, "dataset": {}}
	for _, id := range slices.Sorted(maps.Keys(sets)) {
		n["Dataset"][id], n["dataset"][id] = true, true
		for name, col := range sets[id].Columns {
			n["Column"][id+"."+name], n["name"][name] = true, true
			n["Class"][col.Class], n["class"][col.Class] = true, true
		}
	}
	return n
}

// walk looks at every node of a policy in Cedar's JSON form.
func walk(n any, have names, add func(string)) {
	switch n := n.(type) {
	case []any:
		for _, c := range n {
			walk(c, have, add)
		}
	case map[string]any:
		entity(n, have, add)
		for op, c := range n {
			if both, ok := c.(map[string]any); ok {
				compared(op, both, have, add)
			}
			walk(c, have, add)
		}
	}
}

// entity checks a literal such as Column::"orders.email".
func entity(n map[string]any, have names, add func(string)) {
	typ, ok1 := n["type"].(string)
	id, ok2 := n["id"].(string)
	if all, ok := have[typ]; ok1 && ok2 && ok && strings.ToUpper(typ[:1]) == typ[:1] && !all[id] {
		add(fmt.Sprintf("there is no %s %s", strings.ToLower(typ), contract.Echo(id)))
	}
}

// compared checks texts that a column's attribute is compared with, such as resource.class == "pii".
func compared(op string, both map[string]any, have names, add func(string)) {
	if !slices.Contains([]string{"==", "!=", "in", "contains", "containsAny", "containsAll"}, op) {
		return
	}
	for _, sides := range [][2]string{{"left", "right"}, {"right", "left"}} {
		attr := attribute(both[sides[0]])
		if all, ok := have[attr]; ok && strings.ToLower(attr) == attr {
			for _, s := range texts(both[sides[1]]) {
				if !all[s] {
					add(fmt.Sprintf("no column has the %s %s", attr, contract.Echo(s)))
				}
			}
		}
	}
}

// attribute is the attribute's name in resource.<name>.
func attribute(n any) string {
	m, _ := n.(map[string]any)
	dot, _ := m["."].(map[string]any)
	left, _ := dot["left"].(map[string]any)
	if left["Var"] != "resource" {
		return ""
	}
	attr, _ := dot["attr"].(string)
	return attr
}

// texts are the string literals of a value or of a set of values.
func texts(n any) []string {
	m, _ := n.(map[string]any)
	if s, ok := m["Value"].(string); ok {
		return []string{s}
	}
	var out []string
	set, _ := m["Set"].([]any)
	for _, e := range set {
		out = append(out, texts(e)...)
	}
	return out
}
