// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/treaty-node/treaty/node/delegation"
	"github.com/treaty-node/treaty/node/httpapi"
)

func (c *cli) askCmd() *cobra.Command {
	var req httpapi.AskRequest
	var onFailure string
	cmd := &cobra.Command{
		Use:   "ask QUESTION",
		Short: "Ask other agents a plain question, all at once, and print what each says",
		Long: "Ask other agents a plain question, all at once, and print what each says. Every agent is verified by its DID first. With\n" +
			"--depth 2 or 3 those who are asked may ask others in turn, if they offer that (delegation.serve in their configuration).\n" +
			"No data moves and nothing is negotiated.",
		Example: "  treaty ask \"What can be negotiated?\" --peer vendorcorp.test\n" +
			"  treaty ask \"What can be negotiated?\" --skill negotiate-data-contract --depth 2 --on-failure fail",
		Args: cobra.ExactArgs(1),
		RunE: verb(func(cmd *cobra.Command, args []string) error {
			req.Text, req.OnFailure = args[0], delegation.OnFailure(onFailure)
			var answers []delegation.Answer
			if err := c.admin().Post(cmd.Context(), "/ask", req, &answers); err != nil {
				return err
			}
			return c.print(answers, func(w io.Writer) { printAnswers(w, answers, "") })
		}),
	}
	f := cmd.Flags()
	f.StringArrayVar(&req.Agents, "peer", nil, "DID or domain to ask; repeat for several (default: delegation.agents)")
	f.StringVar(&req.Skill, "skill", "", "ask only agents whose card lists a skill with this id or tag")
	f.IntVar(&req.Depth, "depth", 1, "hops that the question may travel, 1 to 3")
	f.StringVar(&onFailure, "on-failure", string(delegation.Partial), "partial: the others' answers count; fail: one failure fails the whole and takes the others back")
	return cmd
}

func printAnswers(w io.Writer, answers []delegation.Answer, indent string) {
	for _, a := range answers {
		fmt.Fprintf(w, "%s%s  %s", indent, a.Agent, a.Outcome)
		if a.Error != "" {
			fmt.Fprintf(w, ": %s", line(a.Error))
		}
		fmt.Fprintln(w)
		if a.Text != "" {
			fmt.Fprintf(w, "%s  %s\n", indent, strings.ReplaceAll(strings.TrimSpace(a.Text), "\n", "\n"+indent+"  "))
		}
		printAnswers(w, a.Branches, indent+"    ")
	}
}
