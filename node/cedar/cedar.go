// SPDX-License-Identifier: Apache-2.0

// Package cedar decides by policies in the Cedar language which company may use which column for what. A node narrows its
// offers by such a file, and a data plane holds one of its own as a ceiling that no contract lifts.
//
// Guarantees
//
//   - As Cedar defines it: what no permit allows is denied, and one forbid outweighs every permit. A policy that fails while it
//     is evaluated denies.
//   - A file is parsed and validated against the schema of this package before it is used: a misspelt attribute, type or action
//     is an error with its line, and so is one id for two policies. [Policy.Check] finds names that no dataset has.
//   - Every ruling names the policy that decided.
//
// What it does not do: it grants nothing. Its yes only means that the other rules decide.
package cedar

import (
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	cedar "github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/cedar-policy/cedar-go/x/exp/schema"
	"github.com/cedar-policy/cedar-go/x/exp/schema/validate"

	"github.com/treaty-node/treaty/node/contract"
)

// Schema is what a policy can speak of, in Cedar's schema language.
//
//go:embed schema.cedarschema
var Schema string

// MaxBytes bounds a policy file.
const MaxBytes = 1 << 20

// ErrPolicy is wrapped by every error about a policy file.
var ErrPolicy = errors.New("cedar policy")

// Policy is a set of policies, ready to decide. It is safe for concurrent use and never changes.
type Policy struct {
	name string
	set  *cedar.PolicySet
	ids  []string // in the file's order
}

// Company is who asks. Lineage are the DIDs of its verified line, itself among them or not; nil is itself alone.
type Company struct {
	DID, Domain string
	Lineage     []string
}

// Terms are the terms under which a column would be used.
type Terms struct {
	Purpose                     string
	RetentionDays, MinGroupSize int
}

// Column is a column of a dataset with its class, "" for none.
type Column struct{ Dataset, Name, Class string }

// Ruling is what the policies say about one use of one column.
type Ruling struct {
	Allowed bool
	Rule    string // id of the policy that decided; "" when none permits
	Line    int    // of that policy in its file
}

// Why says the ruling in words.
func (r Ruling) Why() string {
	switch {
	case r.Rule == "":
		return "no policy permits it"
	case r.Allowed:
		return fmt.Sprintf("permitted by policy %s (line %d)", r.Rule, r.Line)
	}
	return fmt.Sprintf("forbidden by policy %s (line %d)", r.Rule, r.Line)
}

// validator is the schema, resolved once.
var validator = sync.OnceValues(func() (*validate.Validator, error) {
	var s schema.Schema
	if err := s.UnmarshalCedar([]byte(Schema)); err != nil {
		return nil, err
	}
	r, err := s.Resolve()
	if err != nil {
		return nil, err
	}
	return validate.New(r), nil
})

// Parse reads a policy file and validates it. name is how errors call it. Errors match ErrPolicy and name the line.
func Parse(name string, data []byte) (*Policy, error) {
	if len(data) > MaxBytes {
		return nil, fmt.Errorf("%w: %s: larger than %d bytes", ErrPolicy, name, MaxBytes)
	}
	list, err := cedar.NewPolicyListFromBytes(name, data)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrPolicy, name, err)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%w: %s: there is no policy in it, and so nothing would be allowed", ErrPolicy, name)
	}
	v, err := validator()
	if err != nil {
		return nil, fmt.Errorf("%w: schema: %w", ErrPolicy, err)
	}
	p := &Policy{name: name, set: cedar.NewPolicySet()}
	for i, one := range list {
		line := one.Position().Line
		id := string(one.Annotations()["id"])
		if id == "" {
			id = fmt.Sprintf("policy%d", i)
		}
		if len(id) > contract.MaxName-len(RulePrefix) || contract.CheckColumnName(id) != nil {
			return nil, fmt.Errorf("%w: %s:%d: @id is too long or not printable", ErrPolicy, name, line)
		}
		if slices.Contains(p.ids, id) {
			return nil, fmt.Errorf("%w: %s:%d: there are two policies with the id %s", ErrPolicy, name, line, contract.Echo(id))
		}
		if err := v.Policy(id, (*ast.Policy)(one.AST())); err != nil {
			return nil, fmt.Errorf("%w: %s:%d: %w", ErrPolicy, name, line, err)
		}
		p.ids = append(p.ids, id)
		p.set.Add(cedar.PolicyID(id), one)
	}
	return p, nil
}

// IDs are the policies' ids, in the file's order.
func (p *Policy) IDs() []string { return slices.Clone(p.ids) }

// Uses beside the operations: those of a column grant.
const (
	Read   = contract.UseRead
	Filter = contract.UseFilter
	Group  = contract.UseGroup
)

// entity types of the schema.
const (
	typeCompany = types.EntityType("Company")
	typeDomain  = types.EntityType("Domain")
	typeColumn  = types.EntityType("Column")
	typeDataset = types.EntityType("Dataset")
	typeClass   = types.EntityType("Class")
	typeAction  = types.EntityType("Action")
)

// actionGroups are what the actions are in, as the schema says.
var actionGroups = map[string][]string{Read: {"use"}, Filter: {"use"}, Group: {"use"}, "aggregate": {"use"}}

func uid(t types.EntityType, id string) types.EntityUID {
	return types.NewEntityUID(t, types.String(id))
}

// Decide rules on one use of one column: Read, Filter, Group, or an operation. A nil policy permits everything.
func (p *Policy) Decide(who Company, use string, col Column, t Terms) Ruling {
	if p == nil {
		return Ruling{Allowed: true}
	}
	principal, action, resource := uid(typeCompany, who.DID), uid(typeAction, use), uid(typeColumn, col.Dataset+"."+col.Name)
	parents := []types.EntityUID{uid(typeDomain, who.Domain)}
	for _, id := range who.Lineage {
		if id != who.DID {
			// With its domain: who is forbidden by domain does not get out of it by moving to another.
			parents = append(parents, uid(typeCompany, id), uid(typeDomain, Domain(id)))
		}
	}
	within := []types.EntityUID{uid(typeDataset, col.Dataset)}
	if col.Class != "" {
		within = append(within, uid(typeClass, col.Class))
	}
	groups := actionGroups[use]
	if groups == nil { // an operation
		groups = []string{"aggregate"}
	}
	entities := types.EntityMap{
		principal: {UID: principal, Parents: types.NewEntityUIDSet(parents...), Attributes: types.NewRecord(types.RecordMap{"did": types.String(who.DID), "domain": types.String(who.Domain)})},
		resource: {UID: resource, Parents: types.NewEntityUIDSet(within...), Attributes: types.NewRecord(types.RecordMap{
			"dataset": types.String(col.Dataset), "name": types.String(col.Name), "class": types.String(col.Class),
		})},
		action:                       {UID: action, Parents: types.NewEntityUIDSet(uid(typeAction, groups[0]))},
		uid(typeAction, "aggregate"): {UID: uid(typeAction, "aggregate"), Parents: types.NewEntityUIDSet(uid(typeAction, "use"))},
	}
	decision, diag := cedar.Authorize(p.set, entities, cedar.Request{
		Principal: principal, Action: action, Resource: resource,
		Context: types.NewRecord(types.RecordMap{
			"purpose": types.String(t.Purpose), "retentionDays": types.Long(t.RetentionDays), "minGroupSize": types.Long(t.MinGroupSize),
		}),
	})
	if len(diag.Errors) > 0 {
		e := slices.MinFunc(diag.Errors, func(a, b cedar.DiagnosticError) int { return a.Position.Line - b.Position.Line })
		return Ruling{Rule: string(e.PolicyID), Line: e.Position.Line}
	}
	if len(diag.Reasons) == 0 {
		return Ruling{}
	}
	first := slices.MinFunc(diag.Reasons, func(a, b cedar.DiagnosticReason) int { return a.Position.Line - b.Position.Line })
	return Ruling{Allowed: decision == cedar.Allow, Rule: string(first.PolicyID), Line: first.Position.Line}
}

// RulePrefix stands before a policy's id where a rule is named.
const RulePrefix = "cedar:"

// Name is how a ruling is named as a rule.
func (r Ruling) Name() string {
	if r.Rule == "" {
		return RulePrefix + "no-permit"
	}
	return RulePrefix + r.Rule
}

// Domain is a DID's domain, as the schema's Domain entities are named.
func Domain(did string) string {
	parts := strings.SplitN(did, ":", 4)
	if len(parts) < 3 {
		return ""
	}
	return strings.ToLower(strings.ReplaceAll(parts[2], "%3A", ":"))
}
