// SPDX-License-Identifier: Apache-2.0

package csvimport

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/treaty-node/treaty/node/dataset"
)

func inspect(t *testing.T, data string, o Options) *Report {
	t.Helper()
	rep, err := Inspect(context.Background(), strings.NewReader(data), o)
	if err != nil {
		t.Fatal(err)
	}
	return rep
}

func types(rep *Report) map[string]string {
	m := map[string]string{}
	for _, c := range rep.Columns {
		m[c.Name] = c.TypeName
	}
	return m
}

func finding(rep *Report, code string) (Finding, bool) {
	for _, f := range rep.Findings {
		if f.Code == code {
			return f, true
		}
	}
	return Finding{}, false
}

func TestFiles(t *testing.T) {
	tests := []struct {
		file  string
		csv   dataset.CSV
		rows  int64
		types map[string]string
		codes map[string]Level // findings that must be there
	}{
		{"plain.csv", dataset.CSV{}, 60, map[string]string{"region": "text", "amount": "decimal(6,2)", "day": "date"}, nil},
		{"bom_crlf_quoted.csv", dataset.CSV{}, 60, map[string]string{"region": "text", "amount": "decimal(6,2)", "active": "boolean"}, nil},
		{"semicolon_decimal_comma.csv", dataset.CSV{}, 60, map[string]string{"Region": "text", "Betrag": "text", "Datum": "text"}, map[string]Level{"number_format": Warning, "date_format": Warning}},
		{"semicolon_decimal_comma.csv", dataset.CSV{Decimal: ",", Thousands: ".", DateFormat: "DD.MM.YYYY"}, 60, map[string]string{"Region": "text", "Betrag": "decimal(6,2)", "Datum": "date"}, nil},
		{"tab.tsv", dataset.CSV{}, 60, map[string]string{"region": "text", "qty": "integer", "note": "text"}, nil},
		{"pipe_timestamps.csv", dataset.CSV{}, 60, map[string]string{"region": "text", "amount": "decimal(6,2)", "local": "timestamp", "instant": "timestamptz"}, nil},
		{"utf16.csv", dataset.CSV{}, 0, map[string]string{}, map[string]Level{"encoding": Error}},
		{"utf16.csv", dataset.CSV{Encoding: "utf-16"}, 60, map[string]string{"region": "text", "amount": "decimal(6,2)"}, nil},
		{"utf16.csv", dataset.CSV{Encoding: "utf-16le"}, 60, map[string]string{"region": "text", "amount": "decimal(6,2)"}, nil},
		{"windows1252.csv", dataset.CSV{}, 0, map[string]string{}, map[string]Level{"encoding": Error}},
		{"windows1252.csv", dataset.CSV{Encoding: "windows-1252"}, 60, map[string]string{"région": "text", "montant": "decimal(6,2)"}, nil},
		{"embedded.csv", dataset.CSV{}, 60, map[string]string{"region": "text", "comment": "text", "amount": "decimal(6,2)"}, nil},
		{"leading_zeros.csv", dataset.CSV{}, 60, map[string]string{"postcode": "text", "amount": "decimal(6,2)"}, map[string]Level{"leading_zeros": Info}},
		{"big_numbers.csv", dataset.CSV{}, 20, map[string]string{"grp": "text", "big": "decimal(30,0)", "exact": "decimal(36,19)"}, map[string]Level{"big_integer": Info}},
		{"beyond_2_53.csv", dataset.CSV{}, 20, map[string]string{"grp": "text", "id": "integer"}, nil},
		{"ambiguous_dates.csv", dataset.CSV{}, 60, map[string]string{"region": "text", "when": "text", "amount": "decimal(6,2)"}, map[string]Level{"ambiguous_date": Warning}},
		{"ambiguous_dates.csv", dataset.CSV{DateFormat: "MM/DD/YYYY"}, 60, map[string]string{"region": "text", "when": "date", "amount": "decimal(6,2)"}, nil},
		{"nulls.csv", dataset.CSV{}, 60, map[string]string{"region": "text", "amount": "decimal(6,2)", "note": "text"}, map[string]Level{"null_and_empty": Warning}},
		{"missing_words.csv", dataset.CSV{}, 60, map[string]string{"region": "text", "amount": "text"}, map[string]Level{"missing_words": Warning}},
		{"missing_words.csv", dataset.CSV{Nulls: []string{"NA"}}, 60, map[string]string{"region": "text", "amount": "decimal(6,2)"}, nil},
		{"sep_line.csv", dataset.CSV{}, 60, map[string]string{"region": "text", "amount": "decimal(6,2)"}, map[string]Level{"sep_line": Info}},
		{"one_column.csv", dataset.CSV{}, 60, map[string]string{"amount": "decimal(6,2)"}, nil},
		{"cr_only.csv", dataset.CSV{}, 60, map[string]string{"region": "text", "amount": "decimal(6,2)"}, map[string]Level{"line_ends": Info}},
		{"no_header.csv", dataset.CSV{}, 59, map[string]string{"column 1": "integer", "column 2": "decimal(6,2)"}, map[string]Level{"header_is_data": Error}},
		{"no_header.csv", dataset.CSV{NoHeader: true, Header: []string{"grp", "amount"}}, 60, map[string]string{"grp": "integer", "amount": "decimal(6,2)"}, nil},
		{"hostile_names.csv", dataset.CSV{}, 60, map[string]string{"select": "text", `a "b" c`: "integer", "x; DROP TABLE t --": "integer", "日本語": "integer", "amount": "decimal(6,2)"}, nil},
		{"ragged.csv", dataset.CSV{}, 2, map[string]string{"region": "text", "amount": "decimal(3,2)"}, map[string]Level{"ragged_row": Error}},
		{"ragged.csv", dataset.CSV{RaggedRows: "skip"}, 2, map[string]string{"region": "text", "amount": "decimal(3,2)"}, map[string]Level{"ragged_row": Warning}},
		{"exponents.csv", dataset.CSV{}, 30, map[string]string{"grp": "text", "x": "decimal(7,3)", "y": "double"}, map[string]Level{"double": Warning}},
		{"blank_lines.csv", dataset.CSV{}, 2, map[string]string{"region": "text", "amount": "decimal(3,2)"}, map[string]Level{"blank_line": Info}},
		{"no_final_newline.csv", dataset.CSV{}, 2, map[string]string{"region": "text", "amount": "decimal(3,2)"}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.file, func(t *testing.T) {
			f, err := os.Open(filepath.Join("testdata", tt.file))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			rep, err := Inspect(context.Background(), f, Options{CSV: tt.csv})
			if err != nil {
				t.Fatal(err)
			}
			if got := types(rep); !reflect.DeepEqual(got, tt.types) {
				t.Errorf("types %v, want %v (findings %+v)", got, tt.types, rep.Findings)
			}
			if rep.Rows != tt.rows {
				t.Errorf("%d rows, want %d", rep.Rows, tt.rows)
			}
			wantOK := true
			for code, level := range tt.codes {
				wantOK = wantOK && level != Error
				if got, ok := finding(rep, code); !ok || got.Level != level {
					t.Errorf("finding %s: %+v, want level %s", code, got, level)
				}
			}
			if rep.OK() != wantOK {
				t.Errorf("OK = %v, want %v: %+v", rep.OK(), wantOK, rep.Findings)
			}
			if len(tt.codes) == 0 && len(rep.Findings) > 0 {
				t.Errorf("findings where none are due: %+v", rep.Findings)
			}
		})
	}
}

func TestFindings(t *testing.T) {
	tests := []struct {
		name, data string
		csv        dataset.CSV
		code       string
		level      Level
		line       int
		column     string
	}{
		{"empty file", "", dataset.CSV{}, "empty_file", Error, 0, ""},
		{"header only", "a,b\n", dataset.CSV{}, "no_rows", Warning, 0, ""},
		{"duplicate names", "a,B,b\n1,x,y\n", dataset.CSV{}, "header_duplicate", Error, 1, "b"},
		{"duplicate names settled", "a,B,b\n1,x,y\n", dataset.CSV{Header: []string{"a", "b", "c"}}, "", "", 0, ""},
		{"empty name", "a,,c\n1,x,y\n", dataset.CSV{}, "header_empty", Error, 1, ""},
		{"trailing delimiter", "a,b,\nx,y,\n", dataset.CSV{}, "header_empty", Error, 1, ""},
		{"name with a control character", "a,b\x01c\nx,y\n", dataset.CSV{}, "header_name", Error, 1, ""},
		{"name with spaces around", "a, b\nx,y\n", dataset.CSV{}, "header_space", Warning, 1, "b"},
		{"wrong number of configured names", "a,b\nx,y\n", dataset.CSV{Header: []string{"a"}}, "header_length", Error, 1, ""},
		{"ragged late", "a,b\n1,2\n\"x\ny\",3\n4\n", dataset.CSV{}, "ragged_row", Error, 5, ""},
		{"two delimiters", "a;b,c\n1;2,3\n", dataset.CSV{}, "delimiter", Error, 0, ""},
		{"two delimiters settled", "a;b,c\n1;2,3\n", dataset.CSV{Delimiter: ";"}, "number_format", Warning, 2, "b,c"},
		{"unclosed quote", "a,b\n1,\"2\n3,4\n", dataset.CSV{}, "unclosed_quote", Error, 2, ""},
		{"text after a quote", "a,b\n1,\"2\"3\n", dataset.CSV{}, "text_after_quote", Error, 2, ""},
		{"bare quote", "a,b\n1,5\" pipe\n", dataset.CSV{}, "bare_quote", Warning, 2, ""},
		{"not UTF-8 late", "a,b\n1,2\n3,\xe9\n", dataset.CSV{}, "encoding", Error, 3, ""},
		{"NUL", "a,b\n1,\x00\n", dataset.CSV{}, "encoding", Error, 2, ""},
		{"unknown encoding", "a,b\n1,2\n", dataset.CSV{Encoding: "klingon"}, "configuration", Error, 0, ""},
		{"undefined byte", "a,b\n1,\x81\n", dataset.CSV{Encoding: "shift_jis"}, "encoding", Error, 2, ""},
		{"damaged before", "a,b\n1,\ufffd\n", dataset.CSV{}, "replacement_character", Warning, 2, ""},
		{"UTF-16 without mark", "a\x00,\x00b\x00\n\x00", dataset.CSV{Encoding: "utf-16"}, "encoding", Error, 1, ""},
		{"date order unclear", "d\n01/02/2025\n", dataset.CSV{}, "ambiguous_date", Warning, 2, "d"},
		{"date order mixed", "d\n31/12/2025\n12/31/2025\n", dataset.CSV{}, "ambiguous_date", Warning, 2, "d"},
		{"day first only", "d\n01.02.2025\n31.12.2025\n", dataset.CSV{}, "date_format", Warning, 2, "d"},
		{"currency", "v\n€ 1.50\n$2.00\n", dataset.CSV{}, "number_format", Warning, 2, "v"},
		{"thousands", "v;w\n1,234.50;x\n12;y\n", dataset.CSV{}, "number_format", Warning, 2, "v"},
		{"spaces", "a;v\nx; 1\ny;2\n", dataset.CSV{}, "spaces", Warning, 2, "v"},
		{"spaces settled", "a;v\nx; 1\ny;2\n", dataset.CSV{Trim: true}, "", "", 0, ""},
		{"quoted empty keeps text", "a,v\nx,\"\"\ny,2\n", dataset.CSV{}, "quoted_empty", Warning, 2, "v"},
		{"quoted empty settled", "a,v\nx,\"\"\ny,2\n", dataset.CSV{QuotedEmpty: "null"}, "", "", 0, ""},
		{"mixed types", "a,v\nx,2025-01-01\ny,2025-01-01 10:00\n", dataset.CSV{}, "mixed_types", Warning, 0, "v"},
		{"late text", "a,v\nx,1\ny,2\nz,three\n", dataset.CSV{}, "late_text", Warning, 4, "v"},
		{"no values", "a,v\nx,\n", dataset.CSV{}, "empty_column", Warning, 0, "v"},
		{"39 digits", "v\n123456789012345678901234567890123456789\n", dataset.CSV{}, "too_many_digits", Warning, 2, "v"},
		{"bad delimiter", "a\n1\n", dataset.CSV{Delimiter: "\""}, "configuration", Error, 0, ""},
		{"bad date format", "a\n1\n", dataset.CSV{DateFormat: "DD/MM/YY"}, "configuration", Error, 0, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rep := inspect(t, tt.data, Options{CSV: tt.csv})
			if tt.code == "" {
				if len(rep.Findings) > 0 {
					t.Fatalf("findings: %+v", rep.Findings)
				}
				return
			}
			f, ok := finding(rep, tt.code)
			if !ok || f.Level != tt.level || f.Line != tt.line || f.Column != tt.column {
				t.Fatalf("got %+v, want %s %s line %d column %q; all: %+v", f, tt.level, tt.code, tt.line, tt.column, rep.Findings)
			}
			if rep.OK() != (tt.level != Error) {
				t.Fatalf("OK = %v with %+v", rep.OK(), rep.Findings)
			}
		})
	}
}

func TestDeclaredTypes(t *testing.T) {
	declared := func(name, typ string) Options {
		ty, err := dataset.ParseType(typ)
		if err != nil {
			t.Fatal(err)
		}
		return Options{Declared: map[string]dataset.Type{name: ty}}
	}
	tests := []struct {
		name, data, col, typ, code string
		line                       int
	}{
		{"wider decimal", "v\n1.5\n20\n", "v", "decimal(12,4)", "", 0},
		{"too many digits after the point", "v\n1.5\n2.125\n", "v", "decimal(12,2)", "type_mismatch", 3},
		{"zeros after the point may go", "v\n1.500\n", "v", "decimal(12,2)", "", 0},
		{"too many digits before the point", "v\n12345.00\n", "v", "decimal(6,2)", "type_mismatch", 2},
		{"numbers as text", "v\n1\n2\n", "v", "text", "", 0},
		{"2^63", "v\n9223372036854775807\n9223372036854775808\n", "v", "integer", "type_mismatch", 3},
		{"text in a number", "v\n1\nx\n", "v", "integer", "type_mismatch", 3},
		{"leading zeros are no number", "v\n007\n", "v", "integer", "type_mismatch", 2},
		{"date in year 0", "v\n0000-01-01\n", "v", "date", "type_mismatch", 2},
		{"dates at the ends", "v\n0001-01-01\n9999-12-31\n", "v", "date", "", 0},
		{"30 February", "v\n2025-02-30\n", "v", "date", "type_mismatch", 2},
		{"zone missing", "v\n2025-01-01T10:00:00\n", "v", "timestamptz", "type_mismatch", 2},
		{"nanoseconds would be lost", "v\n2025-01-01T10:00:00.123456789\n", "v", "timestamp", "type_mismatch", 2},
		{"NaN", "v\n1\nNaN\n", "v", "double", "type_mismatch", 3},
		{"infinite", "v\n1e400\n", "v", "double", "type_mismatch", 2},
		{"missing column", "v\n1\n", "w", "integer", "missing_column", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rep := inspect(t, tt.data, declared(tt.col, tt.typ))
			if tt.code == "" {
				if !rep.OK() {
					t.Fatalf("findings: %+v", rep.Findings)
				}
				return
			}
			f, ok := finding(rep, tt.code)
			if !ok || f.Level != Error || f.Line != tt.line {
				t.Fatalf("got %+v of %+v", f, rep.Findings)
			}
			if !errors.Is(rep.Err(), ErrReport) {
				t.Fatalf("Err = %v", rep.Err())
			}
		})
	}
}

// A surprise beyond the first 20,480 rows, where engines stop looking, decides the type like any other.
func TestLateSurprise(t *testing.T) {
	var b strings.Builder
	b.WriteString("id,code\n")
	for range 30_000 {
		b.WriteString("12,34\n")
	}
	b.WriteString("12.75,0034\n")
	rep := inspect(t, b.String(), Options{})
	if got := types(rep); got["id"] != "decimal(4,2)" || got["code"] != "text" {
		t.Fatalf("types %v", got)
	}
	if f, ok := finding(rep, "leading_zeros"); !ok || f.Line != 30_002 {
		t.Fatalf("findings %+v", rep.Findings)
	}
}

// Reports reach screens and logs; the values are what is being protected.
func TestReportQuotesNoValue(t *testing.T) {
	const secret = "s3cr3t"
	for _, data := range []string{
		"a,b\n" + secret + "\n",
		"a,b\n1,\"" + secret + "\"x\n",
		"a,b\n1,\"" + secret + "\n",
		"n\n1\n2\n" + secret + "\n",
		"n\n1\n\xff" + secret + "\n",
		"a,b\n" + secret + ",01/02/2025\n",
	} {
		ty := dataset.Type{Kind: dataset.Integer}
		rep := inspect(t, data, Options{Declared: map[string]dataset.Type{"n": ty, "a": ty}})
		if len(rep.Findings) == 0 {
			t.Fatalf("no finding in %q", data)
		}
		for _, f := range rep.Findings {
			if strings.Contains(f.Text, secret) || strings.Contains(f.Column, secret) {
				t.Errorf("the report quotes a value: %+v", f)
			}
		}
	}
	// A first row of values must not show as names.
	rep := inspect(t, "4711,12.50\n4712,13.50\n", Options{})
	for _, c := range rep.Columns {
		if strings.Contains(c.Name, "47") {
			t.Errorf("a value became a column's name: %+v", c)
		}
	}
}

func TestLoadRefusesAChangedFile(t *testing.T) {
	const before = "a,b\nx,1.50\ny,2.50\n"
	for _, after := range []string{"a,b\nx,1.50\ny,9.50\n", "a,b\nx,1.50\n", "a,b\nx,1.50\ny\n", "a,b\nx,zz\ny,2.50\n", "a,b\nx,\"1\n"} {
		rep := inspect(t, before, Options{})
		err := rep.Load(context.Background(), strings.NewReader(after), []string{"b"}, func([]any) error { return nil })
		if !errors.Is(err, ErrChanged) {
			t.Errorf("after %q: %v", after, err)
		}
	}
}

// A file that changes while its rows are read: nothing of it is loaded. One that another takes the place of is read to its end.
func TestLoadWhileTheFileChanges(t *testing.T) {
	const rows = 20_000 // more than is read ahead
	before := "a,b\n" + strings.Repeat("x,1.50\n", rows)
	for name, tt := range map[string]struct {
		change func(path string) error
		want   error
	}{
		"cut":            {func(path string) error { return os.Truncate(path, int64(len(before)/2)) }, ErrChanged},
		"cut to nothing": {func(path string) error { return os.Truncate(path, 0) }, ErrChanged},
		"longer": {func(path string) error {
			return os.WriteFile(path, []byte(before+"y,9.50\n"), 0o600)
		}, ErrChanged},
		"another last value": {func(path string) error {
			return os.WriteFile(path, []byte(strings.TrimSuffix(before, "1.50\n")+"9.50\n"), 0o600)
		}, ErrChanged},
		"no CSV any more": {func(path string) error {
			return os.WriteFile(path, []byte(before[:len(before)/2]+strings.Repeat("\"", 3)+before[len(before)/2+3:]), 0o600)
		}, ErrChanged},
		"another in its place": {func(path string) error {
			if err := os.WriteFile(path+".new", []byte("a,b\nz,0.00\n"), 0o600); err != nil {
				return err
			}
			return os.Rename(path+".new", path)
		}, nil},
	} {
		path := filepath.Join(t.TempDir(), "d.csv")
		if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		rep, err := Inspect(t.Context(), f, Options{})
		if err != nil || !rep.OK() {
			t.Fatal(rep, err)
		}
		n := 0
		err = rep.Load(t.Context(), f, []string{"a", "b"}, func([]any) error {
			if n++; n == 1 {
				return tt.change(path)
			}
			return nil
		})
		if !errors.Is(err, tt.want) || tt.want == nil && n != rows {
			t.Errorf("%s: %d rows, %v", name, n, err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLoadValues(t *testing.T) {
	rep := inspect(t, "a,b,c,d\n\"\",,1.5,TRUE\nx,\"p,q\",2.25,false\n", Options{})
	var got [][]any
	err := rep.Load(context.Background(), strings.NewReader("a,b,c,d\n\"\",,1.5,TRUE\nx,\"p,q\",2.25,false\n"), []string{"d", "c", "b", "a"}, func(row []any) error {
		line := make([]any, len(row))
		for i, v := range row {
			if d, ok := v.(dataset.Decimal); ok {
				v = d.String()
			}
			line[i] = v
		}
		got = append(got, line)
		return nil
	})
	want := [][]any{{true, "1.50", nil, ""}, {false, "2.25", "p,q", "x"}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("%v, %v", got, err)
	}
	if err := rep.Load(context.Background(), strings.NewReader(""), []string{"nope"}, nil); !errors.Is(err, ErrColumn) {
		t.Fatalf("unknown column: %v", err)
	}
}

func TestInspectEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Inspect(ctx, strings.NewReader("a,b\n1,2\n"), Options{}); !errors.Is(err, context.Canceled) {
		t.Fatalf("err = %v", err)
	}
}

// FuzzImport: any bytes give a report; what a report allows is loaded, row for row.
func FuzzImport(f *testing.F) {
	files, err := filepath.Glob("testdata/*.*sv")
	if err != nil || len(files) == 0 {
		f.Fatalf("no seeds: %v", err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data[:min(len(data), 512)])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		rep, err := Inspect(context.Background(), strings.NewReader(string(data)), Options{})
		if err != nil {
			t.Fatal(err)
		}
		if !rep.OK() {
			return
		}
		var names []string
		for _, c := range rep.Columns {
			names = append(names, c.Name)
		}
		n := int64(0)
		err = rep.Load(context.Background(), strings.NewReader(string(data)), names, func([]any) error { n++; return nil })
		if err != nil || n != rep.Rows {
			t.Fatalf("%d of %d rows: %v", n, rep.Rows, err)
		}
	})
}
