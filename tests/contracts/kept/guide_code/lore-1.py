from workbench import lore

tree = lore.tag(df)  # runs df once when AQE has not settled its plan
print(tree.render())
lore.dump(df, "9[0 2-4]", "dumps/q", tree=tree)
print(lore.replay("dumps/q/loreId-9").answer)  # in a process of its own
