"""The mathematics of visual coresets: tensors in, tensors out.

Read the rooms in the order in which a coreset is made: ``budget``, ``queries``, ``messages``,
``heads``, ``banks``, ``clients``, ``coverage``, ``support``, ``realise``; ``coreset`` runs them in
that order, ``bounds`` states what can be proved about the result, ``reference`` holds the plain
form of the solver.
"""
