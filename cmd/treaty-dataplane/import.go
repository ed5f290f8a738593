// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/dataplane/csvimport"
	"github.com/treaty-node/treaty/node/dataplane/server"
	"github.com/treaty-node/treaty/node/dataset"
)

// importReport is what import prints with --json.
type importReport struct {
	File string `json:"file"`
	OK   bool   `json:"ok"`
	*csvimport.Report
	Suggestion string `json:"suggestion,omitempty"` // columns, as YAML
}

func (c *cli) importCmd() *cobra.Command {
	var opts dataset.CSV
	var src dataset.Source
	var id string
	cmd := &cobra.Command{
		Use:   "import [FILE]",
		Short: "Check a source and say what an import would make of it",
		Long: "import reads a whole CSV file, loads nothing, and prints what it found: encoding, delimiter, the type of every column\n" +
			"over all rows, and everything that cannot be decided without the operator. No value of the file is ever printed.\n" +
			"With --kind it looks at Parquet files or at a table of PostgreSQL, SQLite or Trino: columns, types and rows.\n\n" +
			"With FILE it prints columns ready to be pasted into the datasets' configuration; with --dataset it checks the\n" +
			"configured dataset, as serve will. Exit code 6: the file cannot be imported as it is.",
		Example: "  treaty-dataplane import orders.csv\n  treaty-dataplane import orders.csv --delimiter ';' --decimal-separator , --date-format DD.MM.YYYY\n  treaty-dataplane import --dir vendor-data --dataset orders --json\n" +
			"  treaty-dataplane import --kind parquet orders/\n" +
			"  treaty-dataplane import --kind postgres --url 'postgres://treaty@db.vendorcorp.test/shop' --password-file db.pw --schema public --table orders",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if src.Kind != "" && src.Kind != dataset.CSVFiles {
				d := dataset.Dataset{Source: &src}
				if len(args) == 1 {
					d.Path = args[0]
				}
				if err := d.ValidateSource(); err != nil {
					return fmt.Errorf("import%w", err)
				}
				return c.importSource(cmd, d, ".", func(p string) string { return p })
			}
			var file string
			o := csvimport.Options{CSV: opts}
			switch {
			case (len(args) == 1) == (id != ""):
				return fmt.Errorf("give a file or --dataset")
			case id != "":
				l, err := server.Load(c.dir, time.Now())
				if err != nil {
					return failure(err)
				}
				d, ok := l.Sets[id]
				if !ok {
					return fmt.Errorf("there is no dataset %q", id)
				}
				if d.KindOf() != dataset.CSVFiles {
					return c.importSource(cmd, d, l.DataDir, l.Path)
				}
				file, o = d.Path, csvimport.OptionsFor(d)
				if !filepath.IsAbs(file) {
					file = filepath.Join(l.DataDir, file)
				}
			default:
				file = args[0]
			}
			f, err := os.Open(file) //nolint:gosec // the operator names it
			if err != nil {
				return failure(err)
			}
			defer func() { _ = f.Close() }() // read only
			rep, err := csvimport.Inspect(cmd.Context(), f, o)
			if err != nil {
				return failure(err)
			}
			out := importReport{File: filepath.Base(file), OK: rep.OK(), Report: rep}
			if id == "" && rep.OK() {
				out.Suggestion = suggestion(rep)
			}
			if err := c.print(out, func(w io.Writer) { printReport(w, out) }); err != nil {
				return failure(err)
			}
			if !rep.OK() {
				return &exitError{exitImport, rep.Err()}
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&id, "dataset", "", "a configured dataset, instead of a file")
	f.StringVar(&src.Kind, "kind", "", "csv (default), parquet, postgres, sqlite or trino")
	f.StringVar(&src.URL, "url", "", "PostgreSQL or Trino server")
	f.StringVar(&src.User, "user", "", "user of Trino")
	f.StringVar(&src.PasswordFile, "password-file", "", "file with the password")
	f.StringVar(&src.PasswordEnv, "password-env", "", "variable with the password")
	f.StringVar(&src.CA, "source-ca", "", "authorities of the server's certificate, PEM")
	f.StringVar(&src.Catalog, "catalog", "", "catalog of Trino")
	f.StringVar(&src.Schema, "schema", "", "schema of the table")
	f.StringVar(&src.Table, "table", "", "table or view")
	f.BoolVar(&src.Immutable, "immutable", false, "nothing writes the SQLite file")
	f.StringVar(&opts.Encoding, "encoding", "", "the file's encoding (default: utf-8)")
	f.StringVar(&opts.Delimiter, "delimiter", "", "one character, or tab (default: detected)")
	f.StringVar(&opts.DateFormat, "date-format", "", "such as DD/MM/YYYY")
	f.StringVar(&opts.Decimal, "decimal-separator", "", ". or ,")
	f.StringVar(&opts.Thousands, "thousands-separator", "", "one character")
	f.StringSliceVar(&opts.Nulls, "nulls", nil, "unquoted words that mean null, such as NA")
	f.StringVar(&opts.QuotedEmpty, "quoted-empty", "", "what \"\" means: text (default) or null")
	f.StringVar(&opts.RaggedRows, "ragged-rows", "", "rows of another length: error (default) or skip")
	f.StringSliceVar(&opts.Header, "header", nil, "names that replace the header row")
	f.BoolVar(&opts.NoHeader, "no-header", false, "the file has no header row; needs --header")
	f.BoolVar(&opts.Trim, "trim", false, "cut spaces around unquoted values")
	return cmd
}

func printReport(w io.Writer, r importReport) {
	fmt.Fprintf(w, "%s: %d bytes, %s, delimiter %s, %d rows\n", r.File, r.Bytes, r.Encoding, r.Delimiter, r.Rows)
	if len(r.Columns) > 0 {
		tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
		fmt.Fprintln(tw, "COLUMN\tTYPE\tNULLS\tEMPTY TEXTS")
		for _, c := range r.Columns {
			fmt.Fprintf(tw, "%s\t%s\t%d\t%d\n", contract.Echo(c.Name), c.TypeName, c.Nulls, c.EmptyTexts)
		}
		_ = tw.Flush() // to the terminal
	}
	for _, f := range r.Findings {
		fmt.Fprintf(w, "%s %s", f.Level, f.Code)
		if f.Line > 0 {
			fmt.Fprintf(w, ", line %d", f.Line)
		}
		if f.Column != "" {
			fmt.Fprintf(w, ", column %s", contract.Echo(f.Column))
		}
		if f.Count > 1 {
			fmt.Fprintf(w, " (%d)", f.Count)
		}
		fmt.Fprintf(w, ": %s\n", f.Text)
	}
	if r.Suggestion != "" {
		fmt.Fprintf(w, "\nColumns for the configuration; give every column that may be granted a class:\n\n%s", r.Suggestion)
	}
}

// suggestion is YAML to paste under datasets.<id>.
func suggestion(r *csvimport.Report) string {
	s := "columns:\n"
	for _, c := range r.Columns {
		s += fmt.Sprintf("  %s: {type: %q}\n", strconv.Quote(c.Name), c.TypeName)
	}
	return s
}
