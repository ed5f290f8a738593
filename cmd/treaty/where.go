// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"

	"github.com/treaty-node/treaty/node/contract"
)

// parseWhere reads a filter as people write it:
//
//	expression = term { "or" term }
//	term       = factor { "and" factor }
//	factor     = "not" factor | "(" expression ")" | condition
//	condition  = column ( "=" | "!=" | "<" | "<=" | ">" | ">=" | "prefix" ) value
//	           | column "between" value "and" value
//	           | column "in" "(" value { "," value } ")"
//	           | column "is" [ "not" ] "null"
//
// A column is a word or stands in double quotes, a value is a word or stands in single quotes; a quote is doubled inside its
// own. The words true and false without quotes are booleans. Keywords are in any case.
func parseWhere(s string) (*contract.Filter, error) {
	p := &whereParser{tokens: whereTokens(s)}
	if p.tokens == nil {
		return nil, usage("--where: a quote is not closed")
	}
	f, err := p.expression(1)
	if err != nil {
		return nil, err
	}
	if t := p.peek(); t.text != "" || t.quote != 0 {
		return nil, usage("--where: %q: want and, or, or the end", t.text)
	}
	return &f, nil
}

// whereToken is a word, a sign or a quoted text. quote is 0 for what is not quoted.
type whereToken struct {
	text  string
	quote byte
}

func (t whereToken) is(word string) bool { return t.quote == 0 && strings.EqualFold(t.text, word) }

// whereTokens splits; nil when a quote is not closed.
func whereTokens(s string) []whereToken {
	out := []whereToken{}
	for i := 0; i < len(s); {
		switch c := s[i]; {
		case c == ' ' || c == '\t' || c == '\n':
			i++
		case c == '"' || c == '\'':
			var b strings.Builder
			for i++; ; i++ {
				if i >= len(s) {
					return nil
				}
				if s[i] == c {
					if i+1 < len(s) && s[i+1] == c {
						i++
					} else {
						break
					}
				}
				b.WriteByte(s[i])
			}
			out = append(out, whereToken{b.String(), c})
			i++
		case c == '(' || c == ')' || c == ',':
			out = append(out, whereToken{text: string(c)})
			i++
		case strings.IndexByte("=!<>", c) >= 0:
			n := i + 1
			if n < len(s) && s[n] == '=' {
				n++
			}
			out = append(out, whereToken{text: s[i:n]})
			i = n
		default:
			n := i
			for n < len(s) && strings.IndexByte(" \t\n\"'(),=!<>", s[n]) < 0 {
				n++
			}
			out = append(out, whereToken{text: s[i:n]})
			i = n
		}
	}
	return out
}

type whereParser struct {
	tokens []whereToken
	at     int
}

func (p *whereParser) peek() whereToken {
	if p.at < len(p.tokens) {
		return p.tokens[p.at]
	}
	return whereToken{}
}

func (p *whereParser) take(word string) bool {
	if p.at < len(p.tokens) && p.peek().is(word) {
		p.at++
		return true
	}
	return false
}

// expression and term keep a list that has one entry only as that entry.
func (p *whereParser) expression(depth int) (contract.Filter, error) {
	list, err := p.list(depth, "or", p.term)
	if err != nil || len(list) == 1 {
		return first(list), err
	}
	return contract.Filter{Or: list}, nil
}

func (p *whereParser) term(depth int) (contract.Filter, error) {
	list, err := p.list(depth, "and", p.factor)
	if err != nil || len(list) == 1 {
		return first(list), err
	}
	return contract.Filter{And: list}, nil
}

func first(list []contract.Filter) contract.Filter {
	if len(list) == 0 {
		return contract.Filter{}
	}
	return list[0]
}

func (p *whereParser) list(depth int, word string, one func(int) (contract.Filter, error)) ([]contract.Filter, error) {
	var out []contract.Filter
	for {
		f, err := one(depth)
		if err != nil {
			return nil, err
		}
		if out = append(out, f); !p.take(word) {
			return out, nil
		}
	}
}

// maxWhereNesting bounds parentheses and nots; the data plane's own bound is lower.
const maxWhereNesting = 64

func (p *whereParser) factor(depth int) (contract.Filter, error) {
	switch {
	case depth > maxWhereNesting:
		return contract.Filter{}, usage("--where: more than %d levels", maxWhereNesting)
	case p.take("not"):
		f, err := p.factor(depth + 1)
		return contract.Filter{Not: &f}, err
	case p.take("("):
		f, err := p.expression(depth + 1)
		if err == nil && !p.take(")") {
			err = usage("--where: a ) is missing")
		}
		return f, err
	}
	c, err := p.condition()
	return contract.Where(c), err
}

func (p *whereParser) condition() (contract.Condition, error) {
	column := p.peek()
	if column.text == "" || column.quote == '\'' || strings.ContainsAny(column.text, "()=!<>,") && column.quote == 0 {
		return contract.Condition{}, usage("--where: want a column, have %q", column.text)
	}
	p.at++
	c := contract.Condition{Column: column.text}
	var err error
	switch op := p.peek(); {
	case p.take("is"):
		c.Op = contract.OpIsNull
		if p.take("not") {
			c.Op = contract.OpIsNotNull
		}
		if !p.take("null") {
			err = usage("--where: %s is: want null or not null", c.Column)
		}
	case p.take("in"):
		c.Op = contract.OpIn
		c.Values, err = p.values()
	case p.take("between"):
		c.Op, c.Values = contract.OpBetween, make([]contract.Value, 2)
		if c.Values[0], err = p.value(); err == nil {
			if !p.take("and") {
				return c, usage("--where: %s between: want A and B", c.Column)
			}
			c.Values[1], err = p.value()
		}
	case op.is("=") || op.is("!=") || op.is("<") || op.is("<=") || op.is(">") || op.is(">=") || op.is("prefix"):
		p.at++
		c.Op = strings.ToLower(op.text)
		c.Value, err = p.value()
	default:
		err = usage("--where: %s: %q is not one of = != < <= > >= in between prefix, is null, is not null", c.Column, op.text)
	}
	return c, err
}

func (p *whereParser) value() (contract.Value, error) {
	t := p.peek()
	if p.at >= len(p.tokens) || t.quote == 0 && strings.ContainsAny(t.text, "()=!<>,") || t.quote == '"' {
		return contract.Value{}, usage("--where: want a value, have %q; text stands in single quotes, names of columns in double ones", t.text)
	}
	p.at++
	if t.is("true") || t.is("false") {
		return contract.BoolValue(t.is("true")), nil
	}
	return contract.TextValue(t.text), nil
}

func (p *whereParser) values() ([]contract.Value, error) {
	if !p.take("(") {
		return nil, usage("--where: in: want a list in parentheses")
	}
	var out []contract.Value
	for {
		v, err := p.value()
		if err != nil {
			return nil, err
		}
		out = append(out, v)
		switch {
		case p.take(")"):
			return out, nil
		case !p.take(","):
			return nil, usage("--where: in: want , or )")
		}
	}
}
