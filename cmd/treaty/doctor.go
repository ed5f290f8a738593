// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/treaty-node/treaty/node"
	"github.com/treaty-node/treaty/node/httpapi"
)

// errUnfit: contracting would not work. The report that was printed says why.
var errUnfit = errors.New("contracting would not work")

func (c *cli) doctorCmd() *cobra.Command {
	var peer string
	cmd := &cobra.Command{
		Use:   "doctor [--peer DID|DOMAIN]",
		Short: "Examine this node, or a counterparty, and say how to mend what is wrong",
		Long: "Examine this node: its files, its event log, and what others see of it (documents, certificate, agent card, data plane).\n" +
			"With --peer, examine a counterparty: trust policy, DID document, certificate, clock, agent card, transports, data plane.\n" +
			"Exit code 0: contracting would work (there may be warnings). Exit code 6: it would not.",
		Example: "  treaty doctor\n  treaty doctor --peer vendorcorp.test\n  treaty doctor --peer vendorcorp.test --json",
		Args:    cobra.NoArgs,
		RunE: verb(func(cmd *cobra.Command, _ []string) error {
			var d httpapi.Diagnosis
			err := c.admin().Post(cmd.Context(), "/doctor", httpapi.DoctorRequest{Peer: peer}, &d)
			if errors.Is(err, httpapi.ErrNoNode) && peer == "" {
				d, err = node.DoctorOffline(c.dir), nil
			}
			if err != nil {
				return err
			}
			if err := c.print(d, func(w io.Writer) { printDiagnosis(w, d) }); err != nil {
				return err
			}
			if !d.WouldContract {
				return errUnfit
			}
			return nil
		}),
	}
	cmd.Flags().StringVar(&peer, "peer", "", "examine this counterparty: a DID or a domain")
	return cmd
}

func printDiagnosis(w io.Writer, d httpapi.Diagnosis) {
	fmt.Fprintln(w, d.Subject)
	warnings, failures := 0, 0
	for _, k := range d.Checks {
		fmt.Fprintf(w, "  %-4s  %s: %s\n", k.Status, line(k.Name), line(k.Detail))
		if k.Mend != "" {
			fmt.Fprintf(w, "        to mend it: %s\n", line(k.Mend))
		}
		switch k.Status {
		case httpapi.CheckWarn:
			warnings++
		case httpapi.CheckFail:
			failures++
		}
	}
	if d.WouldContract {
		fmt.Fprintf(w, "contracting would work (%d checks, %d warnings)\n", len(d.Checks), warnings)
	} else {
		fmt.Fprintf(w, "contracting would not work (%d checks failed, %d warnings)\n", failures, warnings)
	}
}
