// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/treaty-node/treaty/node"
	"github.com/treaty-node/treaty/node/dataset"
	"github.com/treaty-node/treaty/node/dataset/odcs"
	"github.com/treaty-node/treaty/node/httpapi"
)

// imported is what `datasets import` found.
type imported struct {
	Path     string         `json:"path,omitempty"`
	Datasets dataset.Config `json:"datasets"`
	Skipped  []odcs.Finding `json:"skipped"`
	Notes    []odcs.Finding `json:"notes"`
	Unused   []string       `json:"unused"`
}

func (c *cli) datasetsImportCmd() *cobra.Command {
	var out string
	var skip bool
	cmd := &cobra.Command{
		Use: "import FILE", Short: "Turn a data contract of the Open Data Contract Standard (3.x) into datasets.yaml entries",
		Long: "Turn a data contract of the Open Data Contract Standard (YAML, version 3.x) into entries of datasets.yaml: columns with types,\n" +
			"classes (from classification and tags) and descriptions. What does not map is listed with its line, and nothing is written\n" +
			"(exit code 2); with --skip it is left out. Needs no running node. docs/odcs.md says what maps to what.",
		Example: "  treaty datasets import orders.odcs.yaml --out datasets.yaml", Args: cobra.ExactArgs(1),
		RunE: verb(func(_ *cobra.Command, args []string) error {
			data, err := readBounded(args[0])
			if err != nil {
				return usage("%v", err)
			}
			r, err := odcs.Import(data, odcs.Options{Skip: skip})
			if err != nil {
				hint := ""
				if un := new(odcs.Unmapped); errors.As(err, &un) {
					hint = "mend the contract, or leave out what does not map with --skip"
				}
				return &httpapi.Error{Kind: httpapi.KindUsage, Message: args[0] + ": " + err.Error(), Hint: hint}
			}
			text, err := yaml.Marshal(r.Datasets)
			if err != nil {
				return err
			}
			res := imported{Path: out, Datasets: r.Datasets, Skipped: orEmpty(r.Skipped), Notes: orEmpty(r.Notes), Unused: orEmpty(r.Unused)}
			if out != "" {
				if err := writeNew(out, text); err != nil {
					return err
				}
			}
			return c.print(res, func(w io.Writer) {
				for _, f := range r.Skipped {
					fmt.Fprintf(w, "# left out: %s\n", line(f.String()))
				}
				for _, f := range r.Notes {
					fmt.Fprintf(w, "# note: %s\n", line(f.String()))
				}
				if len(r.Unused) > 0 {
					fmt.Fprintf(w, "# without a counterpart here, and in force nowhere: %s\n", line(strings.Join(r.Unused, ", ")))
				}
				if out != "" {
					fmt.Fprintf(w, "wrote %s: %d datasets\n", out, len(r.Datasets))
					return
				}
				fmt.Fprint(w, string(text))
			})
		}),
	}
	cmd.Flags().StringVar(&out, "out", "", "file to write; it must not exist (default: standard output)")
	cmd.Flags().BoolVar(&skip, "skip", false, "leave out what does not map")
	return cmd
}

func (c *cli) datasetsExportCmd() *cobra.Command {
	var out, only string
	var h odcs.Header
	cmd := &cobra.Command{
		Use: "export", Short: "Write the datasets of this folder as a data contract of the Open Data Contract Standard",
		Long: "Write the datasets that treaty.yaml names as a data contract of the Open Data Contract Standard (" + odcs.APIVersion + "), for catalogues\n" +
			"and people. Needs no running node.",
		Example: "  treaty datasets export --id urn:example:orders --name Orders --out orders.odcs.yaml", Args: cobra.NoArgs,
		RunE: verb(func(_ *cobra.Command, _ []string) error {
			sets, err := c.datasetsOfFolder()
			if err != nil {
				return err
			}
			if only != "" {
				d, ok := sets[only]
				if !ok {
					return &httpapi.Error{Kind: httpapi.KindNotFound, Message: fmt.Sprintf("there is no dataset %q", only)}
				}
				sets = dataset.Config{only: d}
			}
			doc, err := odcs.Export(h, sets)
			if err != nil {
				return usage("%v", err)
			}
			return c.document(out, doc)
		}),
	}
	f := cmd.Flags()
	f.StringVar(&out, "out", "", "file to write; it must not exist (default: standard output)")
	f.StringVar(&only, "dataset", "", "only this dataset")
	f.StringVar(&h.ID, "id", "", "the data contract's id")
	f.StringVar(&h.Name, "name", "datasets", "its name")
	f.StringVar(&h.Version, "version", "1.0.0", "its version")
	f.StringVar(&h.Status, "status", "active", "its status")
	f.StringVar(&h.Domain, "domain", "", "its domain")
	_ = cmd.MarkFlagRequired("id")
	return cmd
}

// datasetsOfFolder reads the datasets that the folder's treaty.yaml names.
func (c *cli) datasetsOfFolder() (dataset.Config, error) {
	cfg, err := node.LoadConfig(c.dir)
	if err != nil {
		return nil, usage("%v", err)
	}
	if cfg.Datasets == "" {
		return nil, usage("%s names no datasets", filepath.Join(c.dir, node.ConfigFile))
	}
	data, err := os.ReadFile(node.Path(c.dir, cfg.Datasets))
	if err != nil {
		return nil, usage("%v", err)
	}
	sets, err := dataset.ParseConfig(data)
	if err != nil {
		return nil, usage("%s: %v", cfg.Datasets, err)
	}
	return sets, nil
}

// document writes a text document to a new file or to standard output.
func (c *cli) document(out string, doc []byte) error {
	if out == "" {
		return c.print(map[string]string{"document": string(doc)}, func(w io.Writer) { fmt.Fprint(w, string(doc)) })
	}
	if err := writeNew(out, doc); err != nil {
		return err
	}
	return c.print(map[string]any{"path": out, "bytes": len(doc)}, func(w io.Writer) { fmt.Fprintf(w, "wrote %s (%d bytes)\n", out, len(doc)) })
}

// writeNew writes a file that must not exist.
func writeNew(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // the operator names it
	if err != nil {
		return usage("%v", err)
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
