"""Methods and applications that nothing in the core needs: committees, Nyström, augmentation, relevance
vectors, kernel PCA, densities by squares, wind fields. May import the rooms from `numerics` to `learning`.
"""
